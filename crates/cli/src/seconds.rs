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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_must_be_a_time() {
        for bad in ["0", "-1", "x", "nan", "inf", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
    }
}
