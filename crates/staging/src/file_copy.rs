//! Copies the content of a file: by sharing its blocks where the file system can, else within the kernel, with its holes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use rustix::fs::{SeekFrom as RawSeek, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;

use crate::cancel::Cancel;

/// So much is copied between two looks at whether the copy was cancelled.
const PIECE_BYTES: u64 = 32 * 1024 * 1024;
const BUFFER_BYTES: usize = 128 * 1024;

/// Whether blocks have to be shared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Fails where it cannot be.
    Required,
    IfPossible,
}

/// Copies `bytes` of `source` into the empty file `target`.
pub(crate) fn copy_content(
    source: &File,
    target: &File,
    bytes: u64,
    sharing: Sharing,
    cancel: &Cancel,
) -> io::Result<()> {
    match ioctl_ficlone(target, source) {
        Ok(()) => return Ok(()),
        Err(errno) if sharing == Sharing::Required && bytes > 0 => return Err(errno.into()),
        Err(_) => {}
    }
    let mut place = 0;
    while let Some((start, end)) = next_data(source, place, bytes) {
        copy_range(source, target, start, end, cancel)?;
        place = end;
    }
    // What ends with a hole gets its length here.
    target.set_len(bytes)
}

/// The next range that is no hole.
fn next_data(source: &File, place: u64, bytes: u64) -> Option<(u64, u64)> {
    if place >= bytes {
        return None;
    }
    let start = match seek(source, RawSeek::Data(place)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return None,
        // The file system knows nothing of holes.
        Err(_) => return Some((place, bytes)),
    };
    let end = seek(source, RawSeek::Hole(start)).unwrap_or(bytes);
    (start < bytes).then_some((start, end.min(bytes)))
}

fn copy_range(source: &File, target: &File, start: u64, end: u64, cancel: &Cancel) -> io::Result<()> {
    let (mut from, mut to) = (start, start);
    while from < end {
        if cancel.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = usize::try_from((end - from).min(PIECE_BYTES)).unwrap_or(BUFFER_BYTES);
        match copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
            // Shorter than it was: changed meanwhile, which the caller finds out.
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                return copy_by_hand(source, target, from, end, cancel);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(
    mut source: &File,
    mut target: &File,
    start: u64,
    end: u64,
    cancel: &Cancel,
) -> io::Result<()> {
    source.seek(SeekFrom::Start(start))?;
    target.seek(SeekFrom::Start(start))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = end - start;
    while left > 0 && !cancel.is_cancelled() {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(BUFFER_BYTES));
        let read = source.read(&mut buffer[..most])?;
        if read == 0 {
            break;
        }
        target.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    if cancel.is_cancelled() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

/// Whether two files have the same content. Reads both, piece by piece.
pub(crate) fn is_equal(mut one: &File, mut other: &File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let (read, also_read) = (fill(&mut one, &mut left)?, fill(&mut other, &mut right)?);
        if left[..read] != right[..also_read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

fn fill(file: &mut &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
