//! What is said and recorded of the limits of a world, and of what it kept out of a project.

use std::os::unix::ffi::OsStrExt;

use substrate_text::visible;
use substrate_trace::{Event, RateLimit, SpanInfo};

use substrate_world::backend::PutAside;
use substrate_world::error::Words;

use crate::front::Kind;
use crate::session::Session;

/// Says which limits a world ran into.
pub fn tell_limits(session: &Session, span: &SpanInfo, reached: &[Words]) {
    for limit in reached {
        let what = match limit.as_ref() {
            "memory" => "memory, and the kernel ended a program that wanted more",
            "pids" => "processes, and could not start more",
            "time" => "time for one command, which was ended",
            other => other,
        };
        session.front.say(
            Kind::Warning,
            &format!(
                "the world ran into its limit of {what} (`world.limits.{limit}` in the policy)"
            ),
        );
        let reached = RateLimit {
            limit: format!("world.limits.{limit}"),
            ..RateLimit::default()
        };
        session.record_or_warn(&Event::rate_limit(span, &reached));
    }
}

/// Says what was made under protected names and where it is now; the same for the record.
pub fn tell_put_aside(session: &Session, put_aside: &[PutAside]) -> Vec<String> {
    let told = put_aside.iter().map(|aside| {
        let path = visible(aside.path.as_os_str().as_bytes());
        let text = match (&aside.now, &aside.error) {
            (_, Some(error)) => {
                format!("`{path}` is protected and was made all the same; it could not be put aside: {error}")
            }
            (Some(now), None) => {
                format!("`{path}` is protected: what was made there is `{}` now", visible(now.as_os_str().as_bytes()))
            }
            (None, None) => format!("`{path}` is protected: what was made there was removed"),
        };
        session.front.say(Kind::Warning, &text);
        format!("fs.protect: {text}")
    });
    told.collect()
}
