//! Spans of time, as people write them, and moments as they read them.

use std::time::{Duration, UNIX_EPOCH};

use substrate_sys::local_time::LocalTime;

/// `90m`, `12h`, `30d`, `never`: a number of seconds, or none.
pub fn seconds(text: &str) -> Result<Option<u64>, String> {
    if text == "never" {
        return Ok(None);
    }
    let wrong = || format!("`{text}` is not a time; write for example 90m, 12h, 30d or never");
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let unit = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds > 0);
    seconds.map(Some).ok_or_else(wrong)
}

/// `90s`, `30m`, `2h`: how long something may take.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write for example 90s, 30m or 2h");
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    // A world counts its time in 32 bits.
    let seconds = number
        .checked_mul(unit)
        .filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

/// A moment in seconds since 1970, to the minute and on the clock of this place.
pub fn local(seconds: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs(seconds);
    match LocalTime::of(at) {
        Some(local) => local.short(),
        None => substrate_text::time::to_the_minute(seconds),
    }
}

/// A number of seconds in its largest units.
pub fn lasting(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "5", "0s", "-1s", "1d", "99999999999h", "never", "é"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(seconds("90m"), Ok(Some(5400)));
        assert_eq!(seconds("never"), Ok(None));
        for bad in [
            "",
            "d",
            "0d",
            "5",
            "-1h",
            "5w",
            "99999999999999999999d",
            "é",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
