//! Reads the lines of a log from all of its files, the oldest first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chain::{LineError, MAX_LINE_BYTES};
use crate::files::{self, ATTEMPT_PAUSE, ATTEMPTS};
use crate::verify::VerifyError;

/// How long a line that is being written may take to be complete.
const LINE_WITHIN: Duration = Duration::from_millis(100);

/// One line and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    pub file: PathBuf,
    /// Counted from 1 within its file.
    pub number: u64,
    /// Without the line break.
    pub text: Vec<u8>,
}

/// Opens a log for reading, also while a gateway writes it.
pub fn read(path: &Path) -> Result<AuditLines, VerifyError> {
    let unreadable = |source| VerifyError::Unreadable { file: path.to_owned(), source };
    let mut missing_file = None;
    for _ in 0..ATTEMPTS {
        match open_all(path) {
            Ok(opened) if is_unchanged(&opened).map_err(unreadable)? => {
                let files = opened.len();
                return Ok(AuditLines { files, rest: opened.into_iter(), current: None });
            }
            Ok(_) => missing_file = None,
            Err(missing @ VerifyError::MissingFile { .. }) => missing_file = Some(missing),
            Err(other) => return Err(other),
        }
        std::thread::sleep(ATTEMPT_PAUSE);
    }
    Err(missing_file.unwrap_or_else(|| unreadable(io::Error::other("its files keep changing"))))
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

/// Returns true if every file still has the name under which it was opened.
fn is_unchanged(opened: &[(PathBuf, File)]) -> io::Result<bool> {
    for (path, file) in opened {
        if !files::is_named(path, file)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The iterator that [`read`] returns.
#[derive(Debug)]
pub struct AuditLines {
    files: usize,
    rest: std::vec::IntoIter<(PathBuf, File)>,
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
            let (path, file) = self.rest.next()?;
            self.current = Some(Current { path, reader: BufReader::new(file), number: 0 });
        }
    }
}

impl Current {
    fn next(&mut self) -> Option<Result<AuditLine, VerifyError>> {
        let mut text = Vec::new();
        let error = match self.read_line(&mut text) {
            Err(source) => return Some(Err(VerifyError::Unreadable { file: self.path.clone(), source })),
            Ok(()) if text.is_empty() => return None,
            Ok(()) if text.pop_if(|byte| *byte == b'\n').is_some() => None,
            Ok(()) if text.len() > MAX_LINE_BYTES => Some(LineError::TooLong),
            Ok(()) => Some(LineError::Torn { bytes: text.len() }),
        };
        self.number += 1;
        let (file, number) = (self.path.clone(), self.number);
        Some(match error {
            None => Ok(AuditLine { file, number, text }),
            Some(error) => Err(VerifyError::Broken { file, line: number, error }),
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
