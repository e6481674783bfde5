//! Terms go where worlds are, which may be elsewhere.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use substrate_policy::terms::{HostPattern, HostRule, PathPattern, Place, WorldSpec};

#[test]
fn terms_come_back_as_they_were_sent() {
    let odd = OsString::from_vec(b"/p/\xff".to_vec());
    let mut spec = WorldSpec {
        policy_id: "p".into(),
        project: Some(odd.clone().into()),
        home: "/home/u".into(),
        write: vec![odd.into(), "/tmp".into()],
        hide: vec![PathPattern {
            glob: b"/p/\xfe*".to_vec(),
            base: "/p".into(),
        }],
        publish: vec![80],
        ..WorldSpec::default()
    };
    spec.net.allowed = vec![HostRule {
        written: "10.0.0.0/8:5432".into(),
        host: HostPattern::Network("10.0.0.0".parse().unwrap(), 8),
        ports: Some((5432, 5432)),
        internal: false,
    }];
    let place = Place::Session(Box::new(spec));
    let text = serde_json::to_string(&place).unwrap();
    assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), place);
}
