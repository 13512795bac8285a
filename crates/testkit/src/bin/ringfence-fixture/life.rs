//! The life of this process in a file that many of them share: who it works for, where, from when to when.
//!
//! Each line is `SESSION START_NS EVENT NOW_NS INODE`: the handle of the session, when the process started (which tells
//! it from others: pids repeat in fences), `start`, `alive` or `exit`, the time, and the inode of the directory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BEAT: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(crate) struct Life {
    file: Arc<File>,
    session: String,
    start: u128,
    inode: u64,
}

impl Life {
    /// Writes the start, and from then on a line at each beat.
    pub(crate) fn begin(path: &Path) -> Self {
        let file =
            OpenOptions::new().create(true).append(true).open(path).expect("the life log can be opened");
        let life = Self {
            file: Arc::new(file),
            session: std::env::var("RINGFENCE_SESSION").unwrap_or_else(|_| "-".to_owned()),
            start: now(),
            inode: std::fs::metadata(".").map_or(0, |directory| directory.ino()),
        };
        life.write("start");
        let beating = life.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(BEAT);
                beating.write("alive");
            }
        });
        life
    }

    pub(crate) fn end(&self) {
        self.write("exit");
    }

    /// One write, so that lines of several processes do not mix.
    fn write(&self, event: &str) {
        let line = format!("{} {} {event} {} {}\n", self.session, self.start, now(), self.inode);
        // The file may be gone with its test.
        let _ = (&*self.file).write_all(line.as_bytes());
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
