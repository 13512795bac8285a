//! Percentiles, medians and per-round ratios.

/// The value below which `percent` of the samples lie (nearest rank); `None` without samples.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The middle value, or the mean of the two middle ones.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(middle.checked_sub(1)?).map(|lower| f64::midpoint(*lower, upper))
}

/// `numerator / denominator` of every round that has both.
pub(crate) fn ratios_per_round(numerator: &[Option<f64>], denominator: &[Option<f64>]) -> Vec<f64> {
    numerator
        .iter()
        .zip(denominator)
        .filter_map(|(above, below)| match (above, below) {
            (Some(above), Some(below)) if *below > 0.0 => Some(above / below),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn close(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9)
    }

    #[test]
    fn percentile_takes_the_nearest_rank() {
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        assert!(close(percentile(&samples, 50), 100.0));
        assert!(close(percentile(&samples, 99), 198.0));
        assert!(close(percentile(&[7.0], 99), 7.0));
        assert!(percentile(&[], 50).is_none());
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert!(close(median(&[3.0, 1.0, 2.0]), 2.0));
        assert!(close(median(&[4.0, 1.0, 2.0, 3.0]), 2.5));
        assert!(median(&[]).is_none());
    }

    #[test]
    fn ratios_skip_rounds_that_lack_a_side() {
        let found = ratios_per_round(&[Some(2.0), None, Some(9.0)], &[Some(1.0), Some(5.0), Some(3.0)]);
        assert_eq!(found.len(), 2);
        assert!(close(median(&found), 2.5));
    }
}
