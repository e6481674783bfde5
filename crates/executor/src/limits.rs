//! What is said and recorded of the limits of a world.

use substrate_trace::{Event, RateLimit, SpanInfo};

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
