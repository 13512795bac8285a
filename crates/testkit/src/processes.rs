//! Other processes as `/proc` shows them.

use std::collections::HashMap;
use std::fs;

/// The pids of all living descendants of `pid`. Zombies do not count.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (child, parent) in living_processes() {
        children.entry(parent).or_default().push(child);
    }
    let mut found = Vec::new();
    let mut to_visit = vec![pid];
    while let Some(parent) = to_visit.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend_from_slice(&below);
        to_visit.extend(below);
    }
    found
}

/// Returns true if `pid` runs. Zombies do not count.
pub fn process_exists(pid: u32) -> bool {
    living_parent(pid).is_some()
}

fn living_processes() -> impl Iterator<Item = (u32, u32)> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((pid, living_parent(pid)?))
    })
}

/// The parent of a process, unless it is gone or a zombie.
fn living_parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::{descendants, process_exists};

    #[test]
    fn a_child_is_found_until_it_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(process_exists(child.id()));
        assert!(descendants(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process_exists(child.id()));
        assert!(!descendants(std::process::id()).contains(&child.id()));
    }
}
