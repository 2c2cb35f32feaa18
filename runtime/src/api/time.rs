//! Moments as text: RFC 3339 in UTC with a `Z` and always six digits of microseconds, so that equal moments have one
//! spelling and texts sort like moments. The list cursor depends on that.

use chrono::{DateTime, NaiveDateTime, Utc};
use powercontext_core::time::DbTime;

const FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";
/// 9999-12-31T23:59:59.999999Z, the last moment RFC 3339 can write.
const MICROS_MAX: i64 = 253_402_300_799_999_999;
/// 0000-01-01T00:00:00Z, the first one.
const MICROS_MIN: i64 = -62_167_219_200_000_000;

/// Writes a moment; one outside the years 0 to 9999 is written as the nearest inside.
pub(crate) fn rfc3339(moment: DbTime) -> String {
    let micros = moment.micros().clamp(MICROS_MIN, MICROS_MAX);
    DateTime::<Utc>::from_timestamp_micros(micros)
        .expect("the range fits chrono's")
        .format(FORMAT)
        .to_string()
}

/// Reads what [`rfc3339`] wrote; `None` for any other spelling.
pub(crate) fn parse_rfc3339(text: &str) -> Option<DbTime> {
    let moment = NaiveDateTime::parse_from_str(text, FORMAT).ok()?.and_utc();
    let moment = DbTime::from_micros(moment.timestamp_micros());
    (rfc3339(moment) == text).then_some(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_six_digits_and_a_z() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_764_000_000_000_001, "2025-11-24T16:00:00.000001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (MICROS_MAX, "9999-12-31T23:59:59.999999Z"),
            (MICROS_MIN, "0000-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(DbTime::from_micros(micros)), text);
            assert_eq!(parse_rfc3339(text), Some(DbTime::from_micros(micros)));
        }
    }

    #[test]
    fn moments_beyond_the_calendar_are_written_at_its_edge() {
        assert_eq!(rfc3339(DbTime::from_micros(i64::MAX)), "9999-12-31T23:59:59.999999Z");
        assert_eq!(rfc3339(DbTime::from_micros(i64::MIN)), "0000-01-01T00:00:00.000000Z");
    }

    #[test]
    fn other_spellings_are_not_read() {
        for text in [
            "",
            "1970-01-01T00:00:00Z",
            "1970-01-01T00:00:00.0Z",
            "1970-01-01T00:00:00.0000000Z",
            "1970-01-01T00:00:00.000000+00:00",
            "1970-01-01 00:00:00.000000Z",
            "1970-1-1T00:00:00.000000Z",
            "1970-01-01T00:00:60.000000Z",
            "+10000-01-01T00:00:00.000000Z",
            "x",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
