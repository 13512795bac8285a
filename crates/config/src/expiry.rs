//! The moment until which something is valid, as people write it.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Reads a time with its offset from UTC, such as `2030-12-31T18:00:00Z`, or a date such as `2030-12-31`, which counts
/// to its end in UTC.
pub fn parse_expiry(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    // The parser of dates takes the date of a longer text, too.
    let is_date = text.len() == "2030-12-31".len();
    let date = text.parse::<Date>().ok().filter(|_| is_date)?;
    Some(date.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_counts_to_its_end_and_a_time_is_exact() {
        let read = |text: &str| parse_expiry(text).map(|time| time.to_string());
        assert_eq!(read("2030-12-31").as_deref(), Some("2031-01-01T00:00:00Z"));
        assert_eq!(read("2030-12-31T18:00:00Z").as_deref(), Some("2030-12-31T18:00:00Z"));
        assert_eq!(read("2030-12-31T18:00:00+02:00").as_deref(), Some("2030-12-31T16:00:00Z"));
        for bad in ["", "tomorrow", "2030-13-01", "2030-12-31T18:00:00", "31.12.2030", "30d"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
