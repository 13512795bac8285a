//! Processes as /proc shows them: descendants, processor time, memory.

use std::collections::HashMap;
use std::fs;

/// One reading of every process's parent and state.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    entries: HashMap<u32, Entry>,
}

#[derive(Debug)]
struct Entry {
    parent: u32,
    zombie: bool,
}

impl ProcessTable {
    pub(crate) fn read() -> Self {
        let directory = fs::read_dir("/proc").into_iter().flatten().flatten();
        let process_ids = directory.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let entries = process_ids.filter_map(|process_id| {
            let fields = stat_fields(process_id)?;
            let parent = fields.get(1)?.parse().ok()?;
            Some((process_id, Entry { parent, zombie: fields.first()? == "Z" }))
        });
        Self { entries: entries.collect() }
    }

    pub(crate) fn children_of(&self, process_id: u32) -> Vec<u32> {
        let children = self.entries.iter().filter(|(_, entry)| entry.parent == process_id);
        children.map(|(child, _)| *child).collect()
    }

    pub(crate) fn descendants_of(&self, process_id: u32) -> Vec<u32> {
        let mut found = self.children_of(process_id);
        let mut visited = 0;
        while visited < found.len() {
            found.extend(self.children_of(found[visited]));
            visited += 1;
        }
        found
    }

    pub(crate) fn is_zombie(&self, process_id: u32) -> bool {
        self.entries.get(&process_id).is_some_and(|entry| entry.zombie)
    }
}

/// The fields of /proc/PID/stat after the command name (which may contain anything): state, parent, …
fn stat_fields(process_id: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    let after_name = stat.get(stat.rfind(')')? + 2..)?;
    Some(after_name.split_ascii_whitespace().map(str::to_owned).collect())
}

/// User and system time of these processes so far, in seconds.
pub(crate) fn processor_seconds(process_ids: &[u32]) -> f64 {
    /// `USER_HZ`, which Linux fixes at 100 on every architecture we run on.
    const TICKS_PER_SECOND: f64 = 100.0;
    const USER_TIME: usize = 11;
    const SYSTEM_TIME: usize = 12;
    let ticks_of = |process_id: &u32| -> Option<f64> {
        let fields = stat_fields(*process_id)?;
        let user: f64 = fields.get(USER_TIME)?.parse().ok()?;
        let system: f64 = fields.get(SYSTEM_TIME)?.parse().ok()?;
        Some(user + system)
    };
    process_ids.iter().filter_map(ticks_of).sum::<f64>() / TICKS_PER_SECOND
}

/// Proportional set size of these processes together, in KiB.
pub(crate) fn proportional_set_kib(process_ids: &[u32]) -> f64 {
    process_ids.iter().filter_map(|process_id| memory_kib(*process_id)).map(|(set, _)| set).sum()
}

/// Proportional set size of a process and its private dirty part, in KiB; `None` if it is gone or not readable
/// for this user.
pub(crate) fn memory_kib(process_id: u32) -> Option<(f64, f64)> {
    let rollup = fs::read_to_string(format!("/proc/{process_id}/smaps_rollup")).ok()?;
    Some((rollup_kib(&rollup, "Pss:")?, rollup_kib(&rollup, "Private_Dirty:")?))
}

fn rollup_kib(rollup: &str, field: &str) -> Option<f64> {
    let rest = rollup.lines().find_map(|line| line.strip_prefix(field))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_the_table_and_has_memory() {
        let own = std::process::id();
        let table = ProcessTable::read();
        assert!(!table.is_zombie(own));
        assert!(table.descendants_of(1).contains(&own) || own == 1);
        assert!(proportional_set_kib(&[own]) > 0.0);
        assert!(processor_seconds(&[own]) >= 0.0);
    }

    #[test]
    fn fields_of_the_rollup_are_told_apart() {
        let rollup = "Rss: 9 kB\nPss:          812 kB\nPss_Dirty:    300 kB\nPrivate_Dirty:  120 kB\n";
        let found = ["Pss:", "Private_Dirty:", "Swap:"].map(|field| rollup_kib(rollup, field));
        assert_eq!(found, [Some(812.0), Some(120.0), None]);
    }
}
