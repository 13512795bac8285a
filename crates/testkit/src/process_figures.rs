//! Memory and open files of a process, from `/proc`.

use std::fs;

/// The memory that is resident now.
pub fn resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// The most memory that was ever resident.
pub fn peak_resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

/// How many files, sockets and pipes are open.
pub fn open_descriptors(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    entries.unwrap_or_else(|error| panic!("process {pid}: {error}")).count()
}

fn status_bytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_else(|error| panic!("process {pid}: {error}"));
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_else(|| panic!("process {pid} has no {field}")) * 1024
}

#[cfg(test)]
mod tests {
    use super::{open_descriptors, peak_resident_bytes, resident_bytes};

    #[test]
    fn memory_and_files_of_this_process_are_seen() {
        let pid = std::process::id();
        let before = (peak_resident_bytes(pid), open_descriptors(pid));
        let touched = vec![1_u8; 64 * 1024 * 1024];
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peak_resident_bytes(pid) >= before.0 && resident_bytes(pid) > touched.len() as u64);
        assert!(open_descriptors(pid) > 0, "{} before, and {file:?}", before.1);
    }
}
