//! Reads lines of a file that is too long to hold in memory: from the beginning, piece by piece, keeping only the
//! requested lines.

use std::io::Read;

use super::answer::{Answer, ToolError};
use super::contents::not_text;
use super::text_answer::{LineRange, LinesRead, TextData, whole_lines};
use crate::files::{FoundFile, PathError, SessionPath};
use crate::text::FileKind;

/// Bytes per read.
const PIECE: usize = 256 * 1024;
/// Lines beyond this offset are not read, because other calls wait meanwhile.
const MAX_READ: u64 = 4 * 1024 * 1024 * 1024;

/// Returns the answer, and how many bytes of text it has.
pub(super) fn read_long_file(
    path: &SessionPath,
    shown: &str,
    found: &mut FoundFile,
    range: LineRange,
    limit: usize,
) -> Result<(Answer, u64), ToolError> {
    let size = u64::try_from(found.stat.st_size).unwrap_or(0);
    let mut piece = vec![0; PIECE];
    let (mut line, mut wanted, mut read) = (1_usize, Vec::new(), 0_u64);
    let end = range.end.unwrap_or(usize::MAX);
    let (mut is_first, mut was_cut) = (true, false);
    loop {
        if read >= MAX_READ {
            let path = path.written().to_owned();
            return Err(PathError::TooLarge { path, size, limit: MAX_READ }.into());
        }
        let length = found.file.read(&mut piece).map_err(|error| PathError::io(path.written(), error))?;
        if length == 0 {
            break;
        }
        let bytes = &piece[..length];
        if is_first && FileKind::of(bytes) != FileKind::Text {
            return Err(not_text(shown, FileKind::of(bytes), size));
        }
        is_first = false;
        read += length as u64;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line >= range.start && line <= end {
                let room = limit.saturating_sub(wanted.len());
                was_cut |= part.len() > room;
                wanted.extend_from_slice(&part[..part.len().min(room)]);
            }
            line += usize::from(part.ends_with(b"\n"));
        }
        // Counting all lines is not worth reading gigabytes.
        if line > end || was_cut {
            break;
        }
    }
    let text = String::from_utf8_lossy(&wanted).into_owned();
    let content = if was_cut { whole_lines(&text, limit.min(text.len() - 1)).to_owned() } else { text };
    let last = range.start.saturating_add(content.split_inclusive('\n').count().max(1) - 1);
    let (lines_read, note) = if content.is_empty() {
        (None, format!("the file is {size} bytes long and has no line {}", range.start))
    } else {
        let note = format!("the file is {size} bytes long; lines {} to {last} are shown", range.start);
        (Some(LinesRead { start: range.start, end: last }), note)
    };
    let data = TextData { path: shown, size, lines_read, ..TextData::default() };
    Ok((data.into_answer(&content, &[note]), content.len() as u64))
}
