//! The machine: its description, its load, and the processes that run on it.

pub(crate) mod one_core;
pub(crate) mod other_load;
pub(crate) mod process_table;
pub(crate) mod started_processes;

use std::fs;

/// When and on which machine a run took place.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
}

impl Machine {
    pub(crate) fn read() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            date: jiff::Timestamp::now().strftime("%F").to_string(),
            kernel,
            processor: model.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
