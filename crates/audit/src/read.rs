//! The lines of a log, the oldest first, over all of its files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chain::{LineError, MAX_LINE_BYTES};
use crate::files;
use crate::verify::VerifyError;

/// A line that is being written this moment is whole after this.
const LINE_WITHIN: Duration = Duration::from_millis(100);

/// How often the files are opened anew because the gateway was just putting one aside.
const ATTEMPTS: usize = 5;
const SETTLED_WITHIN: Duration = Duration::from_millis(20);

/// One line and where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    pub file: PathBuf,
    /// Counted from 1 in its file.
    pub number: u64,
    /// Without the line break.
    pub text: Vec<u8>,
}

/// Opens a log for reading, also while a gateway writes it.
pub fn read(path: &Path) -> Result<AuditLines, VerifyError> {
    let unreadable = |source| VerifyError::Unreadable { file: path.to_owned(), source };
    let mut fault = None;
    for _ in 0..ATTEMPTS {
        match open_all(path) {
            Ok(opened) if is_unchanged(&opened).map_err(unreadable)? => {
                let files = opened.len();
                return Ok(AuditLines { files, left: opened.into_iter(), current: None });
            }
            Ok(_) => fault = None,
            Err(missing @ VerifyError::MissingFile { .. }) => fault = Some(missing),
            Err(other) => return Err(other),
        }
        std::thread::sleep(SETTLED_WITHIN);
    }
    Err(fault.unwrap_or_else(|| unreadable(io::Error::other("its files change all the time"))))
}

/// All files, the oldest first.
fn open_all(path: &Path) -> Result<Vec<(PathBuf, File)>, VerifyError> {
    let numbers =
        files::numbers(path).map_err(|source| VerifyError::Unreadable { file: path.to_owned(), source })?;
    for (expected, number) in (1..).zip(&numbers) {
        if *number != expected {
            return Err(VerifyError::MissingFile { file: files::numbered(path, expected) });
        }
    }
    let aside = numbers.iter().rev().map(|number| files::numbered(path, *number));
    let open = |path: PathBuf| match File::open(&path) {
        Ok(file) => Ok((path, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !numbers.is_empty() => {
            Err(VerifyError::MissingFile { file: path })
        }
        Err(source) => Err(VerifyError::Unreadable { file: path, source }),
    };
    aside.chain([path.to_owned()]).map(open).collect()
}

/// Whether every file still has the name that it was opened by.
fn is_unchanged(opened: &[(PathBuf, File)]) -> io::Result<bool> {
    for (path, file) in opened {
        let (held, named) = (file.metadata()?, path.metadata());
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The lines, as [`read`] finds them.
#[derive(Debug)]
pub struct AuditLines {
    files: usize,
    left: std::vec::IntoIter<(PathBuf, File)>,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    path: PathBuf,
    reader: BufReader<File>,
    number: u64,
}

impl AuditLines {
    /// How many files the log has.
    pub fn files(&self) -> usize {
        self.files
    }
}

impl Iterator for AuditLines {
    type Item = Result<AuditLine, VerifyError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = self.current.as_mut().and_then(Current::next) {
                return Some(line);
            }
            let (path, file) = self.left.next()?;
            self.current = Some(Current { path, reader: BufReader::new(file), number: 0 });
        }
    }
}

impl Current {
    fn next(&mut self) -> Option<Result<AuditLine, VerifyError>> {
        let mut text = Vec::new();
        let flaw = match self.read_line(&mut text) {
            Err(source) => return Some(Err(VerifyError::Unreadable { file: self.path.clone(), source })),
            Ok(()) if text.is_empty() => return None,
            Ok(()) if text.pop_if(|byte| *byte == b'\n').is_some() => None,
            Ok(()) if text.len() > MAX_LINE_BYTES => Some(LineError::TooLong),
            Ok(()) => Some(LineError::Torn { bytes: text.len() }),
        };
        self.number += 1;
        let (file, number) = (self.path.clone(), self.number);
        Some(match flaw {
            None => Ok(AuditLine { file, number, text }),
            Some(flaw) => Err(VerifyError::Broken { file, line: number, flaw }),
        })
    }

    fn read_line(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let mut piece = |text: &mut Vec<u8>| {
            let room = (MAX_LINE_BYTES + 1).saturating_sub(text.len());
            self.reader.by_ref().take(room as u64).read_until(b'\n', text)
        };
        piece(text)?;
        if !text.is_empty() && !text.ends_with(b"\n") && text.len() <= MAX_LINE_BYTES {
            std::thread::sleep(LINE_WITHIN);
            piece(text)?;
        }
        Ok(())
    }
}
