//! Reads the records after a cursor, through all files of a log, while another thread writes and rotates them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cursor::Cursor;
use crate::chain::{AuditHash, MAX_LINE_BYTES};
use crate::files;

/// Bytes of a batch, unless a single line is longer. Receivers of HTTP often take no more than a megabyte.
const BATCH_BYTES: usize = 512 * 1024;

/// Lines that are sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Without their line breaks.
    pub(super) lines: Vec<Vec<u8>>,
    bytes: usize,
    /// Records between the last batch and this one that are in no file any more.
    pub(super) missed: u64,
}

impl Batch {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }
}

pub(super) struct Follower {
    path: PathBuf,
    /// The last record that was read.
    cursor: Cursor,
    /// The cursor comes from an earlier run, and its record was not seen yet.
    is_cursor_unseen: bool,
    /// Where the next one is looked for; `None` before the first.
    place: Option<Place>,
}

struct Place {
    file: File,
    /// At the beginning of a line.
    offset: u64,
}

/// How reading at a place ended.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// All whole lines were read.
    End,
    /// The batch is full, or the next record is not to be read yet.
    Enough,
    /// The cursor belongs to another log.
    OtherLog,
}

impl Follower {
    /// `last`: the number of the last record of the log.
    pub(super) fn new(path: &Path, cursor: Cursor, last: u64) -> Self {
        let mut follower = Self { path: path.to_owned(), cursor, is_cursor_unseen: true, place: None };
        if cursor.seq > last {
            follower.start_over();
        }
        follower
    }

    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Reads the next records, up to the number `last`. Later ones may not be written completely.
    pub(super) fn read(&mut self, last: u64) -> io::Result<Batch> {
        let before = self.cursor;
        let batch = self.try_read(last);
        if batch.is_err() {
            (self.cursor, self.place) = (before, None);
        }
        batch
    }

    fn try_read(&mut self, last: u64) -> io::Result<Batch> {
        let mut batch = Batch::default();
        loop {
            let mut place = match self.place.take() {
                Some(place) => place,
                None => self.find_place()?,
            };
            // Asked first: the lines of a file that was rotated by now are complete.
            let is_rotated = !files::is_named(&self.path, &place.file)?;
            let stop = self.read_at(&mut place, last, &mut batch)?;
            match stop {
                Stop::OtherLog => self.start_over(),
                Stop::End if is_rotated && batch.lines.is_empty() => self.place = Some(self.after(place)?),
                Stop::End | Stop::Enough => {
                    self.place = Some(place);
                    return Ok(batch);
                }
            }
        }
    }

    fn start_over(&mut self) {
        tracing::warn!(
            "{} is not the audit log that was sent before; all of it is sent",
            self.path.display()
        );
        (self.cursor, self.place) = (Cursor::START, None);
    }

    /// The file that has the record of the cursor, or the oldest one.
    fn find_place(&self) -> io::Result<Place> {
        let mut found = None;
        for file in files::open_all(&self.path)?.into_iter().rev() {
            let first = first_number(&file)?;
            found = Some(file);
            if first.is_some_and(|first| first <= self.cursor.seq) {
                break;
            }
        }
        let file = found.ok_or(io::ErrorKind::NotFound)?;
        Ok(Place { file, offset: 0 })
    }

    /// The file that was begun after a rotated one; the oldest if that one is deleted.
    fn after(&self, place: Place) -> io::Result<Place> {
        let mut all = files::open_all(&self.path)?;
        let mut position = None;
        for (number, file) in all.iter().enumerate() {
            if files::is_same(file, &place.file)? {
                position = Some(number);
            }
        }
        let next = position.map_or(0, |number| number + 1);
        if next >= all.len() {
            return Ok(place);
        }
        Ok(Place { file: all.swap_remove(next), offset: 0 })
    }

    fn read_at(&mut self, place: &mut Place, last: u64, batch: &mut Batch) -> io::Result<Stop> {
        loop {
            let lines = whole_lines(&place.file, place.offset)?;
            if lines.is_empty() {
                return Ok(Stop::End);
            }
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                match self.take(line.trim_ascii_end(), last, batch) {
                    None => place.offset += line.len() as u64,
                    Some(stop) => return Ok(stop),
                }
            }
        }
    }

    /// Adds a line to the batch, if it is new. Returns `None` to go on.
    fn take(&mut self, line: &[u8], last: u64, batch: &mut Batch) -> Option<Stop> {
        // A line that is no record was not written by the gateway. Its place in the numbers shows what is missing.
        let record = serde_json::from_slice::<Record>(line).ok()?;
        if record.seq > last || batch.is_full() {
            return Some(Stop::Enough);
        }
        if record.seq <= self.cursor.seq {
            let is_of_cursor = record.seq == self.cursor.seq && std::mem::take(&mut self.is_cursor_unseen);
            return (is_of_cursor && record.hash != self.cursor.hash).then_some(Stop::OtherLog);
        }
        if self.cursor != Cursor::START {
            batch.missed += record.seq - self.cursor.seq - 1;
        }
        self.cursor = Cursor { seq: record.seq, hash: record.hash };
        self.is_cursor_unseen = false;
        batch.bytes += line.len();
        batch.lines.push(line.to_owned());
        None
    }
}

#[derive(Deserialize)]
struct Record {
    seq: u64,
    hash: AuditHash,
}

/// The number of the first record of a file.
fn first_number(file: &File) -> io::Result<Option<u64>> {
    let lines = whole_lines(file, 0)?;
    let mut records = lines.split(|byte| *byte == b'\n').map(serde_json::from_slice::<Record>);
    Ok(records.next().and_then(Result::ok).map(|record| record.seq))
}

/// Reads some whole lines from an offset; none at the end of the file.
fn whole_lines(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut lines = vec![0; BATCH_BYTES];
    let mut filled = 0;
    loop {
        let read = file.read_at(&mut lines[filled..], offset + filled as u64)?;
        filled += read;
        if let Some(place) = memchr::memrchr(b'\n', &lines[..filled]) {
            lines.truncate(place + 1);
            return Ok(lines);
        }
        // What is longer is no line of a log. It is passed over, in pieces.
        let is_too_long = filled > MAX_LINE_BYTES;
        if read == 0 || is_too_long {
            lines.truncate(if is_too_long { filled } else { 0 });
            return Ok(lines);
        }
        if filled == lines.len() {
            lines.resize(lines.len() * 2, 0);
        }
    }
}
