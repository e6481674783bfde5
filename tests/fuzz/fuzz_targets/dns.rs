//! Any bytes as a DNS message, as a program of a world or an upstream server sends them: no panic, and
//! what is answered can be read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use substrate_egress::dns;

fuzz_target!(|data: &[u8]| {
    if let Ok(query) = dns::read_query(data) {
        for answer in [query.answer(&[]), query.fail(dns::Rcode::NXDOMAIN, Some("no")), query.relay(data)] {
            assert!(query.fit_udp(answer).len() <= 65_535);
        }
    }
    let _ = dns::read_response(data);
    let half = data.len() / 2;
    let _ = dns::answers(&data[..half], &data[half..]);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = dns::reverse_address(text);
    }
});
