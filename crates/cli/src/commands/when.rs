//! Spans of time, as people write them.

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
