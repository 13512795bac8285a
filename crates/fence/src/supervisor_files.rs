//! The supervisors of all ringfence processes of a user, as names in one directory.
//!
//! A name is a supervisor's pid and start time, so looking for a process there is one system call, and a name that was
//! left behind matches no later process. All names of a ringfence process are links to one file that it keeps locked:
//! making a name is atomic and creates no file, and a name whose file is not locked belongs to a process that was
//! killed. The directory lies in ringfence's own, which every fence hides and no scope can contain.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::Pid;

use crate::process_table::ProcessStat;
use crate::session_directory::{make_private, random_name};

/// How often another process may remove the file of this one before it is locked.
const ATTEMPTS: usize = 5;

/// The place of the names in ringfence's own directory.
pub(crate) fn directory_in(own: &Path) -> PathBuf {
    own.join("supervisors")
}

/// Whether a ringfence process has registered this process as a supervisor.
pub(crate) fn is_registered(directory: &Path, pid: i32, start_time: u64) -> bool {
    directory.join(name_of(pid, start_time)).symlink_metadata().is_ok()
}

fn name_of(pid: i32, start_time: u64) -> String {
    format!("{pid}-{start_time}")
}

/// The names that this process makes.
#[derive(Debug)]
pub(crate) struct SupervisorFiles {
    directory: PathBuf,
    /// All names are links to it.
    file: PathBuf,
    #[allow(dead_code, reason = "held, not used")]
    lock: File,
}

impl SupervisorFiles {
    /// Opens the directory below ringfence's own, and removes what killed processes have left there.
    pub(crate) fn open(own: &Path) -> io::Result<Self> {
        let directory = directory_in(own);
        make_private(&directory)?;
        sweep(&directory);
        for _ in 0..ATTEMPTS {
            let file = directory.join(format!("of-{}", random_name()?));
            let lock = File::options().write(true).create_new(true).open(&file)?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            // Otherwise another process has swept it away before it was locked.
            if lock.metadata()?.nlink() > 0 {
                return Ok(Self { directory, file, lock });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Registers a supervisor until the name is dropped. `None` if it has ended already.
    pub(crate) fn enter(&self, supervisor: Pid) -> io::Result<Option<SupervisorName>> {
        let Some(stat) = ProcessStat::of(supervisor) else { return Ok(None) };
        let name = self.directory.join(name_of(supervisor.as_raw_nonzero().get(), stat.start_time));
        match fs::hard_link(&self.file, &name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Some(SupervisorName(name))),
        }
    }
}

impl Drop for SupervisorFiles {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// One supervisor's name. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct SupervisorName(PathBuf);

impl Drop for SupervisorName {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes the names of killed processes, but not those of supervisors that have yet to end.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let has_no_owner = File::open(entry.path())
            .is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if has_no_owner && !entry.file_name().to_str().is_some_and(is_running) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_running(name: &str) -> bool {
    let process = |name: &str| {
        let (pid, start_time) = name.split_once('-')?;
        let stat = ProcessStat::of(Pid::from_raw(pid.parse().ok()?)?)?;
        Some(!stat.has_ended && stat.start_time == start_time.parse::<u64>().ok()?)
    };
    process(name).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn number_and_start(child: &Child) -> (i32, u64) {
        let pid = Pid::from_child(child);
        (pid.as_raw_nonzero().get(), ProcessStat::of(pid).unwrap().start_time)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_supervisor_is_found_by_pid_and_start_until_its_name_is_dropped() {
        let own = test_directory::directory("supervisor-files");
        let files = SupervisorFiles::open(&own).unwrap();
        let child = sleeper();
        let (pid, start) = number_and_start(&child);
        let directory = directory_in(&own);
        assert!(!is_registered(&directory, pid, start));
        let name = files.enter(Pid::from_child(&child)).unwrap();
        assert!(is_registered(&directory, pid, start));
        assert!(!is_registered(&directory, pid, start + 1), "a later process with this pid");
        drop(name);
        assert!(!is_registered(&directory, pid, start));
        drop(files);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        end(child);
    }

    #[test]
    fn names_of_killed_processes_are_swept_once_their_supervisors_have_ended() {
        let own = test_directory::directory("supervisor-files-swept");
        let directory = directory_in(&own);
        let (live, killed) = (SupervisorFiles::open(&own).unwrap(), SupervisorFiles::open(&own).unwrap());
        let (first, second) = (sleeper(), sleeper());
        let (of_live, of_killed) = (number_and_start(&first), number_and_start(&second));
        let kept = live.enter(Pid::from_child(&first)).unwrap();
        // As if the process had been killed: the lock is gone, the names are not.
        std::mem::forget(killed.enter(Pid::from_child(&second)).unwrap());
        killed.lock.unlock().unwrap();
        std::mem::forget(killed);
        end(first);
        let is_there = |(pid, start): (i32, u64)| is_registered(&directory, pid, start);
        drop(SupervisorFiles::open(&own).unwrap());
        assert!(is_there(of_live), "its process lives and will remove it");
        assert!(is_there(of_killed), "the supervisor runs");
        end(second);
        drop(SupervisorFiles::open(&own).unwrap());
        assert!(is_there(of_live) && !is_there(of_killed));
        drop((kept, live));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    /// Prints figures and tests nothing: `cargo nextest run -p ringfence-fence how_long --run-ignored only
    /// --no-capture`.
    #[test]
    #[ignore = "prints how long registering takes here"]
    fn how_long_registering_takes() {
        const ROUNDS: u32 = 1000;
        let own = test_directory::directory("supervisor-files-time");
        let child = sleeper();
        let time = |what: &str, register: &dyn Fn()| {
            let begin = std::time::Instant::now();
            (0..ROUNDS).for_each(|_| register());
            eprintln!("{what}: {:?}", begin.elapsed() / ROUNDS);
        };
        let enter = |files: &SupervisorFiles| drop(files.enter(Pid::from_child(&child)).unwrap());
        let files = SupervisorFiles::open(&own).unwrap();
        time("beside others", &|| enter(&files));
        time("the only one", &|| enter(&SupervisorFiles::open(&own).unwrap()));
        drop(files);
        end(child);
    }
}
