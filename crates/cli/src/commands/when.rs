//! Moments and spans of time, as people write them.

/// A moment in UTC, to the minute.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60
    )
}

/// Year, month and day of a day since 1970-01-01; years start in March here, so that the leap day is
/// the last day of one.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month, day - (153 * march + 2) / 5 + 1)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_spans() {
        assert_eq!(utc(0), "1970-01-01T00:00Z");
        assert_eq!(utc(1_709_210_096), "2024-02-29T12:34Z");
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
