//! A value that is read from files, and read again when they change.
//!
//! There is no watcher: a use of the value checks the files, at most once a second. A change that cannot be read is
//! logged and leaves the value as it was, so that a half-written file locks no caller out.

use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::FileStamp;

/// How often the files are checked. Two system calls a second cost nothing.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Files, and how to make a value from them.
pub(crate) trait Source {
    type Value: fmt::Debug;
    type Error: fmt::Display;

    fn files(&self) -> Vec<PathBuf>;
    fn load(&self) -> Result<Self::Value, Self::Error>;
}

#[derive(Debug)]
pub(crate) struct Reloaded<S: Source> {
    source: S,
    current: RwLock<Arc<S::Value>>,
    last_check: Mutex<Check>,
}

/// When the files were checked, and their state then.
#[derive(Debug)]
struct Check {
    at: Instant,
    stamps: Vec<Option<FileStamp>>,
}

impl<S: Source> Reloaded<S> {
    pub(crate) fn new(source: S) -> Result<Self, S::Error> {
        Self::new_at(source, Instant::now())
    }

    fn new_at(source: S, now: Instant) -> Result<Self, S::Error> {
        // Taken before the files are read, so that a write in between counts as a change.
        let stamps = stamps(&source);
        let current = RwLock::new(Arc::new(source.load()?));
        Ok(Self { source, current, last_check: Mutex::new(Check { at: now, stamps }) })
    }

    /// The value, at most a second old.
    pub(crate) fn current(&self) -> Arc<S::Value> {
        self.current_at(Instant::now())
    }

    fn current_at(&self, now: Instant) -> Arc<S::Value> {
        // A locked mutex means that another thread is checking.
        if let Some(mut last_check) = self.last_check.try_lock()
            && now.saturating_duration_since(last_check.at) >= CHECK_EVERY
        {
            last_check.at = now;
            self.reload_if_changed(&mut last_check);
        }
        Arc::clone(&self.current.read())
    }

    fn reload_if_changed(&self, last_check: &mut Check) {
        let stamps = stamps(&self.source);
        if stamps == last_check.stamps {
            return;
        }
        last_check.stamps = stamps;
        let names = self.source.files();
        let names: Vec<_> = names.iter().map(|path| path.display().to_string()).collect();
        match self.source.load() {
            Ok(value) => {
                *self.current.write() = Arc::new(value);
                tracing::info!("{} changed and was read again", names.join(" or "));
            }
            Err(error) => {
                tracing::error!(
                    "{} changed and cannot be used; the previous contents stay in force: {error}",
                    names.join(" or ")
                );
            }
        }
    }
}

fn stamps(source: &impl Source) -> Vec<Option<FileStamp>> {
    source.files().iter().map(|path| FileStamp::of(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::num::ParseIntError;

    use super::*;

    /// A number in a file.
    #[derive(Debug)]
    struct NumberFile(PathBuf);

    impl Source for NumberFile {
        type Value = u32;
        type Error = ParseIntError;

        fn files(&self) -> Vec<PathBuf> {
            vec![self.0.clone()]
        }

        fn load(&self) -> Result<u32, ParseIntError> {
            fs::read_to_string(&self.0).unwrap_or_default().parse()
        }
    }

    fn number_file(name: &str, text: &str) -> NumberFile {
        let path = std::env::current_exe().unwrap().with_extension(format!("reloaded-{name}"));
        fs::write(&path, text).unwrap();
        NumberFile(path)
    }

    #[test]
    fn a_change_is_seen_at_the_next_check_and_not_before() {
        let file = number_file("change", "1");
        let (path, start) = (file.0.clone(), Instant::now());
        let number = Reloaded::new_at(file, start).unwrap();
        fs::write(&path, "22").unwrap();
        assert_eq!(*number.current_at(start + CHECK_EVERY / 2), 1);
        assert_eq!(*number.current_at(start + CHECK_EVERY), 22);
        fs::write(&path, "333").unwrap();
        assert_eq!(*number.current_at(start + CHECK_EVERY), 22, "it was checked just now");
        assert_eq!(*number.current_at(start + 2 * CHECK_EVERY), 333);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_change_that_cannot_be_read_leaves_the_value() {
        let file = number_file("garbled", "1");
        let (path, start) = (file.0.clone(), Instant::now());
        let number = Reloaded::new_at(file, start).unwrap();
        fs::write(&path, "garbled").unwrap();
        assert_eq!(*number.current_at(start + CHECK_EVERY), 1);
        fs::remove_file(&path).unwrap();
        assert_eq!(*number.current_at(start + 2 * CHECK_EVERY), 1);
        fs::write(&path, "55555").unwrap();
        assert_eq!(*number.current_at(start + 3 * CHECK_EVERY), 55555);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_does_not_change_is_read_once() {
        let file = number_file("same", "1");
        let (path, start) = (file.0.clone(), Instant::now());
        let number = Reloaded::new_at(file, start).unwrap();
        let first = number.current_at(start);
        assert!(Arc::ptr_eq(&first, &number.current_at(start + CHECK_EVERY)));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_first_value_that_cannot_be_read_is_an_error() {
        let file = number_file("never", "garbled");
        let path = file.0.clone();
        assert!(Reloaded::new(file).is_err());
        fs::remove_file(path).unwrap();
    }
}
