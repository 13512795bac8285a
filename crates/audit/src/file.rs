//! The file that is written: opened at the end of the log, rotated when it is full.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

use crate::AuditSettings;
use crate::chain::{Chain, LineError, Link, MAX_LINE_BYTES, key_id};
use crate::entry::OwnEntry;
use crate::files;
use crate::key::{AuditKey, KeyMismatch};
use crate::timestamp::Timestamp;

/// Bytes read at once while searching backwards for a line break.
const PIECE: usize = 64 * 1024;

/// Longer than the line that names the key.
const FIRST_LINE: usize = 1024;

/// The beginning of every line. A torn line begins with a part of it.
const LINE_START: &[u8] = b"{\"seq\":";

/// Why a log could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("the audit log {} is in use by another process", .path.display())]
    InUse { path: PathBuf },
    #[error("the audit log {} is a symbolic link", .path.display())]
    Symlink { path: PathBuf },
    #[error("{} does not end like an audit log: {error}", .path.display())]
    NotALog { path: PathBuf, error: LineError },
    #[error("the audit log {}: {mismatch}", .path.display())]
    Key { path: PathBuf, mismatch: KeyMismatch },
    #[error("the audit log {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl OpenError {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "give each gateway a log of its own, or end the other one",
            Self::Symlink { .. } => "name the file itself",
            Self::NotALog { .. } => {
                "the file was not changed; move it away, or name another one, to start a new log"
            }
            Self::Key { mismatch: KeyMismatch::NotKeyed, .. } => {
                "a key is for a new log: move this one and its rotated files away, or leave out --audit-key"
            }
            Self::Key { .. } => {
                "give its key with --audit-key, or move it and its rotated files away to start a new log"
            }
            Self::Io { .. } => "name a file in a directory that exists and that you may write to",
        }
    }
}

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// The bytes of whole lines that were written.
    length: u64,
    /// A write failed and may have left a part of a line after `length`.
    has_surplus: bool,
    /// The file was renamed to `FILE.1`, but a new one could not be created yet.
    is_aside: bool,
    settings: AuditSettings,
    /// Locked while the log is open. A separate file, because rotation replaces the log's own.
    _lock: File,
}

impl LogFile {
    /// Opens the log and repairs its end after a crash. Returns the end of its chain.
    pub(super) fn open(
        path: &Path,
        settings: AuditSettings,
        key: Option<AuditKey>,
    ) -> Result<(Self, Chain), OpenError> {
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                OpenError::Symlink { path: path.to_owned() }
            }
            _ => OpenError::Io { path: path.to_owned(), source },
        };
        let lock = lock(path)?;
        let file = files::open(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE).map_err(failed)?;
        let tail = Tail::read(&file).map_err(failed)?;
        let mut chain = match chain_after(path, &tail, key) {
            Ok(chain) => chain,
            Err(TailError::Line(path, error)) => return Err(OpenError::NotALog { path, error }),
            Err(TailError::Key(path, mismatch)) => return Err(OpenError::Key { path, mismatch }),
            Err(TailError::Io(error)) => return Err(failed(error)),
        };
        files::make_private(&file).map_err(failed)?;
        let mut log = Self {
            path: path.to_owned(),
            file,
            length: tail.whole,
            has_surplus: false,
            is_aside: false,
            settings,
            _lock: lock,
        };
        let mut lines = Vec::new();
        if tail.whole == 0 {
            chain.begin_file(&mut lines);
        }
        if tail.torn > 0 {
            log.put_torn_aside(&tail).map_err(failed)?;
            chain.append(&mut lines, Timestamp::now(), &OwnEntry::Recovered { lost_bytes: tail.torn });
        }
        log.append(&lines).map_err(failed)?;
        Ok((log, chain))
    }

    /// Moves the incomplete line that a crash left to a file beside the log.
    fn put_torn_aside(&mut self, tail: &Tail) -> io::Result<()> {
        let mut torn = vec![0; usize::try_from(tail.torn).unwrap_or(MAX_LINE_BYTES).min(MAX_LINE_BYTES)];
        self.file.read_exact_at(&mut torn, tail.whole)?;
        let aside = files::beside(&self.path, ".torn");
        files::open(&aside, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?.write_all(&torn)?;
        self.file.set_len(tail.whole)?;
        tracing::warn!(
            "the audit log {} ended in the middle of a line; {} bytes are now in {}",
            self.path.display(),
            tail.torn,
            aside.display()
        );
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns true if the file is full with `more` bytes added. An empty file never is.
    pub(super) fn is_full_with(&self, more: usize) -> bool {
        let length = self.length + more as u64;
        length > 0 && length >= self.settings.max_file_bytes
    }

    /// Appends whole lines: all of them, or none.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.has_surplus {
            self.file.set_len(self.length)?;
            self.has_surplus = false;
        }
        if let Err(error) = self.file.write_all(lines) {
            self.has_surplus = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Replaces the descriptor, to make writing fail.
    #[cfg(test)]
    pub(super) fn swap_descriptor(&mut self, other: &mut File) {
        std::mem::swap(&mut self.file, other);
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Renames the file to `FILE.1` and creates a new one.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        if !self.is_aside {
            self.sync()?;
            self.put_aside()?;
            self.is_aside = true;
        }
        self.file = files::open(&self.path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)?;
        (self.length, self.is_aside) = (0, false);
        files::make_private(&self.file)?;
        files::sync_directory(&self.path)
    }

    /// Renames the file to `FILE.1`, after shifting older files up to the first free number. Can be retried after a
    /// partial failure.
    fn put_aside(&self) -> io::Result<()> {
        let kept = self.settings.kept_files;
        if kept == 0 {
            return std::fs::remove_file(&self.path);
        }
        let numbers = files::numbers(&self.path)?;
        let free = (1..=u32::MAX).find(|number| !numbers.contains(number)).unwrap_or(u32::MAX);
        for number in numbers.iter().rev().filter(|number| **number < free) {
            let from = files::numbered(&self.path, *number);
            if *number >= kept {
                std::fs::remove_file(from)?;
            } else {
                std::fs::rename(from, files::numbered(&self.path, number + 1))?;
            }
        }
        std::fs::rename(&self.path, files::numbered(&self.path, 1))
    }
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let lock_path = files::beside(path, ".lock");
    let file = files::open(&lock_path, OFlags::RDWR | OFlags::CREATE)
        .map_err(|source| OpenError::Io { path: lock_path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path: lock_path, source }),
    }
}

enum TailError {
    Line(PathBuf, LineError),
    Key(PathBuf, KeyMismatch),
    Io(io::Error),
}

/// The end of the chain: the last line of the file, or of the file before if this one has none. A file that does not
/// look like a log is an error: it may be any file of the user.
fn chain_after(path: &Path, tail: &Tail, key: Option<AuditKey>) -> Result<Chain, TailError> {
    if tail.last_line.is_some() {
        return tail.chain(path, key);
    }
    if tail.torn > 0 && !tail.begins_like_a_line {
        return Err(TailError::Line(path.to_owned(), LineError::NotARecord));
    }
    let before = files::numbered(path, 1);
    let file = match files::open(&before, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Chain::start(key)),
        Err(error) => return Err(TailError::Io(error)),
    };
    let tail = Tail::read(&file).map_err(TailError::Io)?;
    if tail.torn > 0 {
        return Err(TailError::Line(before, LineError::NotARecord));
    }
    tail.chain(&before, key)
}

/// The end of a file, and its first line.
struct Tail {
    /// Bytes of whole lines.
    whole: u64,
    /// Bytes after them.
    torn: u64,
    /// The last whole line, without its line break.
    last_line: Option<Vec<u8>>,
    /// Whether the file begins like a line, or like a part of one.
    begins_like_a_line: bool,
    /// The id of the key that the first line names.
    key_id: Option<String>,
}

impl Tail {
    fn read(file: &File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut start = [0; FIRST_LINE];
        let known = usize::try_from(length).unwrap_or(usize::MAX).min(start.len());
        file.read_exact_at(&mut start[..known], 0)?;
        let start = &start[..known];
        let begins_like_a_line = LINE_START.starts_with(&start[..known.min(LINE_START.len())]);
        let key_id = start.split(|byte| *byte == b'\n').next().and_then(key_id);
        let Some(last_break) = rfind_break(file, length)? else {
            return Ok(Self { whole: 0, torn: length, last_line: None, begins_like_a_line, key_id });
        };
        let line_start = rfind_break(file, last_break)?.map_or(0, |place| place + 1);
        let size = usize::try_from(last_break - line_start).unwrap_or(usize::MAX);
        // A longer line cannot be a record; the part that is read does not parse.
        let mut line = vec![0; size.min(MAX_LINE_BYTES + 1)];
        file.read_exact_at(&mut line, line_start)?;
        let whole = last_break + 1;
        Ok(Self { whole, torn: length - whole, last_line: Some(line), begins_like_a_line, key_id })
    }

    /// The chain after the last line.
    fn chain(&self, path: &Path, key: Option<AuditKey>) -> Result<Chain, TailError> {
        if self.begins_like_a_line {
            let checked = KeyMismatch::check(self.key_id.as_deref(), key.as_ref());
            checked.map_err(|mismatch| TailError::Key(path.to_owned(), mismatch))?;
        }
        let text = self.last_line.as_deref().ok_or(LineError::NotARecord);
        let link = text.and_then(|text| Link::parse(text, key.as_ref()));
        let link = link.map_err(|error| TailError::Line(path.to_owned(), error))?;
        Ok(Chain::after(&link, key))
    }
}

/// The place of the last line break before `end`.
fn rfind_break(file: &File, mut end: u64) -> io::Result<Option<u64>> {
    let mut piece = vec![0; PIECE];
    while end > 0 {
        let start = end.saturating_sub(PIECE as u64);
        let size = usize::try_from(end - start).unwrap_or(PIECE);
        file.read_exact_at(&mut piece[..size], start)?;
        if let Some(place) = memchr::memrchr(b'\n', &piece[..size]) {
            return Ok(Some(start + place as u64));
        }
        end = start;
    }
    Ok(None)
}
