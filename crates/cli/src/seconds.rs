//! Times on the command line, in seconds.

use std::time::Duration;

/// A year and a day. Longer times overflow when they are added to a clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses the value of an option such as `--timeout`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero() && *duration <= LONGEST)
        .ok_or_else(|| "expected a number of seconds greater than 0, such as 60 or 0.5".to_owned())
}

/// Parses a time in hours, days or weeks: 12h, 30d, 4w.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let parsed = text.split_at_checked(text.len().saturating_sub(1)).and_then(|(number, unit)| {
        let hours = match unit {
            "h" => 1,
            "d" => 24,
            "w" => 7 * 24,
            _ => return None,
        };
        let hours = number.parse::<u32>().ok()?.checked_mul(hours).filter(|hours| *hours > 0)?;
        Some(Duration::from_secs(u64::from(hours) * 3600))
    });
    parsed.ok_or_else(|| "write a time such as 12h, 30d or 4w".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_must_be_a_time() {
        for bad in ["0", "-1", "x", "nan", "inf", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
        assert_eq!(span("2d").unwrap(), Duration::from_hours(48));
        for bad in ["", "d", "0d", "1.5h", "-1d", "3", "9999999999h"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
