//! Any bytes as requests of a client: no panic, and the same verdict and output wherever they are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use substrate_egress::http::Requests;
use substrate_egress::Reason;

fn feed(pieces: &[&[u8]]) -> (Result<(), Reason>, Vec<u8>) {
    let mut requests = Requests::new(None);
    let mut out = Vec::new();
    for piece in pieces {
        let judge = |authority: substrate_egress::http::Authority<'_>| {
            (authority.host != b"a.test").then_some(Reason::NotAllowed)
        };
        if let Err(reason) = requests.feed(piece, &mut out, judge) {
            return (Err(reason), out);
        }
    }
    (Ok(()), out)
}

fuzz_target!(|data: &[u8]| {
    let Some((&at, bytes)) = data.split_first() else {
        return;
    };
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    let (whole, cut) = (feed(&[bytes]), feed(&[head, tail]));
    assert_eq!(whole.0, cut.0);
    assert_eq!(whole.1, cut.1);
});
