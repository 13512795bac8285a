//! The load from other programs: system-wide processor use while every leg is idle.
//!
//! Figures of runs with different loads are not comparable, so reports show readings taken between rounds.

use std::fs;
use std::time::Duration;

const READING: Duration = Duration::from_millis(250);
const IDLE_FIELD: usize = 3;
const WAITING_FOR_DISK_FIELD: usize = 4;
/// User, nice, system, idle, iowait, irq, softirq, steal; the later fields are included in these.
const COUNTED_FIELDS: usize = 8;

/// The percentage of all cores in use during `READING`; `None` if /proc/stat cannot be read.
pub(crate) async fn read_other_load_percent() -> Option<f64> {
    let before = processor_ticks()?;
    tokio::time::sleep(READING).await;
    let after = processor_ticks()?;
    busy_percent(&before, &after)
}

fn processor_ticks() -> Option<Vec<f64>> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_ascii_whitespace().skip(1).take(COUNTED_FIELDS);
    fields.map(|field| field.parse().ok()).collect()
}

fn busy_percent(before: &[f64], after: &[f64]) -> Option<f64> {
    let spent: Vec<f64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    let all: f64 = spent.iter().sum();
    let idle = spent.get(IDLE_FIELD)? + spent.get(WAITING_FOR_DISK_FIELD)?;
    (all > 0.0).then(|| 100.0 * (all - idle) / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_neither_idle_nor_waiting() {
        let before = [0.0; 8];
        let after = [20.0, 0.0, 5.0, 70.0, 5.0, 0.0, 0.0, 0.0];
        assert!(busy_percent(&before, &after).is_some_and(|percent| (percent - 25.0).abs() < 1e-9));
        assert!(busy_percent(&before, &before).is_none());
    }
}
