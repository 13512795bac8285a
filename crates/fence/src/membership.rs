//! Which session and process group a process is in.
//!
//! `getsid` and `getpgid` answer 0 if the leader is outside of this process's pid namespace, as in a container
//! that somebody entered, and their wrappers take every answer for a pid. So the kernel's own list is read.

use rustix::process::Pid;

/// `None` stands for a leader outside of this process's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    pub session: Option<Pid>,
    pub group: Option<Pid>,
}

/// `None`: there is no such process.
pub fn membership_of(process: Pid) -> Option<Membership> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name of the program may hold anything, and ends with the last parenthesis. State and parent follow.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(2);
    let mut leader = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
    let group = leader()?;
    Some(Membership { session: leader()?, group })
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_that_begins_a_session_leads_it() {
        let mut child = std::process::Command::new("setsid")
            .arg("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let leads = || membership_of(pid) == Some(Membership { session: Some(pid), group: Some(pid) });
        while !leads() {
            assert!(std::time::Instant::now() < end);
        }
        assert_ne!(membership_of(getpid()), membership_of(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(membership_of(pid), None);
    }
}
