//! Moments in UTC: RFC 3339 with milliseconds as the trace writes them, and to the minute for people.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment that formats as `2026-03-01T12:34:56.789Z`.
#[derive(Debug, Clone, Copy)]
pub struct Utc(pub SystemTime);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since_epoch = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since_epoch.as_secs();
        let (year, month, day) = civil(seconds / 86_400);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |end: usize, mut value: u64| {
            for digit in text[..end].iter_mut().rev().take_while(|old| **old == b'0') {
                *digit += (value % 10) as u8;
                value /= 10;
            }
        };
        // No later one can be written down.
        put(4, year.min(9999));
        put(7, month);
        put(10, day);
        put(13, seconds / 3600 % 24);
        put(16, seconds / 60 % 60);
        put(19, seconds % 60);
        put(23, since_epoch.subsec_millis().into());
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// A moment in UTC, to the minute.
pub fn to_the_minute(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60
    )
}

/// Year, month and day of a day since 1970-01-01. Years start in March here, so that
/// the leap day is the last day of one; 400 years repeat exactly.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Understands RFC 3339 with any offset and fraction; `None` for anything else.
pub fn parse(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let legal = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !legal || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (nanos, zone) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, zone) = fraction.split_at(digits);
            let nanos: u32 = format!("{:0<9.9}", digits).parse().ok()?;
            (nanos, zone)
        }
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let [hours, minutes] = numbers(zone.strip_prefix(['+', '-'])?, ':')?;
            sign * (hours * 60 + minutes) as i64 * 60
        }
    };
    let seconds = (days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second) as i64;
    let seconds = u64::try_from(seconds - offset).ok()?;
    Some(UNIX_EPOCH + std::time::Duration::new(seconds, nanos))
}

fn numbers<const N: usize>(text: &str, separator: char) -> Option<[u64; N]> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Option<Vec<u64>> = text
        .split(separator)
        .map(|part| part.parse().ok().filter(|_| digits(part)))
        .collect();
    parts?.try_into().ok()
}

/// The inverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let era = year / 400;
    let year_of_era = year % 400;
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn minutes() {
        assert_eq!(to_the_minute(0), "1970-01-01T00:00Z");
        assert_eq!(to_the_minute(1_709_210_096), "2024-02-29T12:34Z");
    }

    #[test]
    fn known_moments() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (1_772_368_496_789, "2026-03-01T12:34:56.789Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(Utc(at).to_string(), text);
        }
    }

    #[test]
    fn text_and_back() {
        for day in (0..80_000).step_by(17) {
            let at = UNIX_EPOCH + Duration::from_millis(day * 86_400_000 + day % 1000);
            assert_eq!(parse(&Utc(at).to_string()), Some(at));
        }
        let at = |text| Utc(parse(text).unwrap()).to_string();
        assert_eq!(at("2026-03-01T12:34:56Z"), "2026-03-01T12:34:56.000Z");
        assert_eq!(
            at("2026-03-01T12:34:56.123456789+02:00"),
            "2026-03-01T10:34:56.123Z"
        );
        assert_eq!(
            at("2026-03-01 00:00:00.5-00:30"),
            "2026-03-01T00:30:00.500Z"
        );
        for bad in [
            "",
            "2026-03-01",
            "2026-03-01T12:34:56",
            "2026-13-01T00:00:00Z",
            "2026-03-01T1:34:56Z0",
            "é026-03-01T12:34:56Z",
            "0001-01-01T00:00:00Z",
            "2026-03-01T+2:34:56Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
