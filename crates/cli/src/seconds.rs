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

/// Parses an age such as `30m`, `12h` or `7d`; without a unit they are seconds.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: Option<u64> = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(24 * 3600),
        "w" => Some(7 * 24 * 3600),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    let seconds = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    seconds
        .map(Duration::from_secs)
        .filter(|age| !age.is_zero() && *age <= LONGEST)
        .ok_or_else(|| "expected an age of up to a year, such as 90s, 30m, 12h, 7d or 4w".to_owned())
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

    #[test]
    fn an_age_has_a_unit() {
        let of = |text| age(text).map(|age| age.as_secs());
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("1w", 604_800)]
        {
            assert_eq!(of(text), Ok(seconds), "{text}");
        }
        for bad in ["", "0", "0d", "-1d", "d", "1y", "1.5h", "400d", "99999999999999999999d", "7 d"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
