//! Open files that a command gets besides its standard streams. It can use them though no path leads to them: what the
//! fence allows is checked when a file is opened. A command that starts others decides whether those get them.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The most files that one command gets.
pub const MAX_PASSED_FILES: usize = 2;

/// Files for a command, and the variable that tells it their numbers.
#[derive(Clone, Debug)]
pub struct PassedFiles {
    variable: &'static str,
    files: Vec<Arc<File>>,
}

impl PassedFiles {
    /// Refuses what is no regular file: a directory or a socket would lead on to others.
    pub fn new(variable: &'static str, files: Vec<Arc<File>>) -> io::Result<Self> {
        if files.len() > MAX_PASSED_FILES {
            return Err(io::Error::other("too many files for one command"));
        }
        for file in &files {
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("only regular files can be passed to a command"));
            }
        }
        Ok(Self { variable, files })
    }

    pub(crate) fn variable(&self) -> &'static str {
        self.variable
    }

    pub(crate) fn files(&self) -> &[Arc<File>] {
        &self.files
    }
}

/// The value of the variable for files whose numbers begin with this one.
pub(crate) fn numbers_in_words(first: RawFd, count: usize) -> String {
    let last = first + RawFd::try_from(count).unwrap_or(0);
    (first..last).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// The files that this process was given at its start, as the variable names them. `None` if it was given none, or this
/// was asked before. Programs that this process starts do not inherit them.
#[cfg(target_os = "linux")]
pub fn take_passed_files(variable: &str) -> Option<Vec<File>> {
    use std::os::fd::{BorrowedFd, FromRawFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    static TAKEN: AtomicBool = AtomicBool::new(false);
    let text = std::env::var(variable).ok()?;
    let numbers: Vec<RawFd> = text.split(',').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let is_passed = |number: &RawFd| {
        // SAFETY: only asks what the descriptor is; a closed one is an error that is handled.
        let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(*number) });
        let is_file = stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
        // SAFETY: as above. The program has opened nothing without this flag, so what lacks it came with its start.
        let flags = unsafe { libc::fcntl(*number, libc::F_GETFD) };
        is_file && flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    let is_sound = numbers.len() <= MAX_PASSED_FILES
        && numbers.iter().all(|number| *number > 2 && is_passed(number))
        && numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if !is_sound || TAKEN.swap(true, Ordering::AcqRel) {
        return None;
    }
    let take = |number: RawFd| {
        // SAFETY: the descriptor is open, was given to this process at its start, and is taken once.
        let file = unsafe { File::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC).ok().map(|()| file)
    };
    numbers.into_iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_regular_files_are_passed() {
        let directory = crate::test_directory::directory("passed-files");
        let file = |name: &str| Arc::new(File::create(directory.join(name)).unwrap());
        assert!(PassedFiles::new("X", vec![file("a"), file("b")]).is_ok());
        assert!(PassedFiles::new("X", vec![file("a"), file("b"), file("c")]).is_err());
        let open = Arc::new(File::open(&directory).unwrap());
        assert!(PassedFiles::new("X", vec![open]).is_err(), "a directory");
    }

    #[test]
    fn the_variable_lists_numbers() {
        assert_eq!(numbers_in_words(9, 2), "9,10");
        assert_eq!(numbers_in_words(9, 0), "");
    }
}
