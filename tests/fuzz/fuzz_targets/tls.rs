//! Any bytes as the beginning of a TLS connection: no panic, never more passed on than there is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use substrate_egress::Reason;
use substrate_egress::tls::{Peek, Progress};

fuzz_target!(|data: &[u8]| {
    let judge = |name: Option<&[u8]>| (name != Some(b"a.test")).then_some(Reason::NotAllowed);
    for end in [data.len() / 2, data.len()] {
        if let Progress::Pass(passed) = Peek::default().look(&data[..end], judge) {
            assert!(passed <= end);
        }
    }
});
