//! Reads the `*** Begin Patch` format: files by name, hunks without line numbers.

use super::{FilePatch, Hunk, HunkLine, PatchError, Position, Role};
use crate::text::Line;

/// The first line of such a patch.
pub(crate) const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

/// Reads the lines after [`BEGIN`]; `first` is the number of the first of them.
pub(crate) fn parse(lines: &[Line<'_>], first: usize) -> Result<Vec<FilePatch>, PatchError> {
    let mut files: Vec<FilePatch> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let text = line.body;
        if text.trim_end() == END {
            return check(files, first);
        }
        let malformed = |reason| PatchError::Malformed { line: first + at, reason };
        if let Some(file) = named_file(text) {
            files.push(file);
            continue;
        }
        let file = files.last_mut().ok_or_else(|| {
            malformed("expected `*** Update File: `, `*** Add File: ` or `*** Delete File: `")
        })?;
        read_line(file, text).map_err(malformed)?;
    }
    check(files, first)
}

/// Reads the line that begins a file's part.
fn named_file(text: &str) -> Option<FilePatch> {
    let name = |prefix| text.strip_prefix(prefix).map(|name: &str| name.trim().to_owned());
    if let Some(path) = name("*** Update File: ") {
        return Some(FilePatch {
            old_path: Some(path.clone()),
            new_path: Some(path),
            ..FilePatch::default()
        });
    }
    if let Some(path) = name("*** Delete File: ") {
        return Some(FilePatch { old_path: Some(path), ..FilePatch::default() });
    }
    name("*** Add File: ").map(|path| FilePatch { new_path: Some(path), ..FilePatch::default() })
}

fn read_line(file: &mut FilePatch, text: &str) -> Result<(), &'static str> {
    if let Some(path) = text.strip_prefix("*** Move to: ") {
        file.is_rename = true;
        file.new_path = Some(path.trim().to_owned());
        return Ok(());
    }
    if text.trim_end() == END_OF_FILE {
        return file.hunks.last_mut().map(|hunk| hunk.is_at_end = true).ok_or("no hunk ends here");
    }
    if file.new_path.is_none() {
        return if text.trim().is_empty() { Ok(()) } else { Err("a deleted file has no lines") };
    }
    if file.old_path.is_none() {
        return added_line(file, text);
    }
    if let Some(section) = text.strip_prefix("@@") {
        let section = section.strip_prefix(' ').unwrap_or(section).trim_end();
        let section = Some(section.to_owned()).filter(|section| !section.is_empty());
        file.hunks.push(Hunk { section, ..Hunk::default() });
        return Ok(());
    }
    let (role, body) = match text.as_bytes().first() {
        None => (Role::Keep, ""),
        Some(b' ') => (Role::Keep, &text[1..]),
        Some(b'-') => (Role::Remove, &text[1..]),
        Some(b'+') => (Role::Add, &text[1..]),
        Some(_) => return Err("a line of a hunk begins with a blank, `+` or `-`"),
    };
    if file.hunks.is_empty() {
        file.hunks.push(Hunk::default());
    }
    push(file, role, body);
    Ok(())
}

fn added_line(file: &mut FilePatch, text: &str) -> Result<(), &'static str> {
    if file.hunks.is_empty() {
        let position = Some(Position { old_start: 0, old_count: 0, new_count: 0 });
        file.hunks.push(Hunk { position, ..Hunk::default() });
    }
    match text.strip_prefix('+') {
        Some(body) => push(file, Role::Add, body),
        None if text.is_empty() => {}
        None => return Err("a line of a new file begins with `+`"),
    }
    Ok(())
}

fn push(file: &mut FilePatch, role: Role, body: &str) {
    let line = HunkLine { role, body: body.to_owned(), is_crlf: false, lacks_newline: false };
    file.hunks.last_mut().into_iter().for_each(|hunk| hunk.lines.push(line.clone()));
}

/// Drops empty lines at the end of a hunk, which may only separate it from the next part.
fn drop_spacing(hunk: &mut Hunk) {
    let is_empty = |line: &HunkLine| line.role == Role::Keep && line.body.is_empty();
    let end = hunk.lines.iter().rposition(|line| !is_empty(line)).map_or(0, |last| last + 1);
    hunk.lines.truncate(end);
}

/// Drops empty hunks and refuses updates without any hunk.
fn check(mut files: Vec<FilePatch>, first: usize) -> Result<Vec<FilePatch>, PatchError> {
    let malformed = |reason| PatchError::Malformed { line: first, reason };
    for file in &mut files {
        let is_update = file.old_path.is_some() && file.new_path.is_some();
        file.hunks.iter_mut().for_each(drop_spacing);
        file.hunks.retain(|hunk| !hunk.lines.is_empty());
        if is_update && file.hunks.is_empty() && !file.is_rename {
            return Err(malformed("a file to update has no hunks"));
        }
    }
    if files.is_empty() { Err(malformed("the patch names no file")) } else { Ok(files) }
}
