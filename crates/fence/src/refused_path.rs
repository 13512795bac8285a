//! Finds out from an error message of a program that the kernel refused a file, or that a file is not there, since no
//! layer of the fence tells what it refused.

use std::path::PathBuf;

/// What programs say when a file cannot be written or reached.
const DENIED: [&str; 6] = [
    "Read-only file system",
    "read-only file system",
    "Permission denied",
    "permission denied",
    "Operation not permitted",
    "operation not permitted",
];

/// What programs and shells say of a file that is not there.
const MISSING: [&str; 5] =
    ["No such file or directory", "no such file or directory", "ENOENT", "can't cd to", ": not found"];

/// The path that a line of output says is not there.
pub fn missing_path(line: &str) -> Option<PathBuf> {
    MISSING.iter().find(|message| line.contains(*message))?;
    path_in(line)
}

/// The path that a line of output says was refused.
pub fn refused_path(line: &str) -> Option<PathBuf> {
    DENIED.iter().find(|message| line.contains(*message))?;
    path_in(line)
}

/// The path that an error message is about: quoted, or a word that looks like one.
fn path_in(line: &str) -> Option<PathBuf> {
    let quoted = line
        .split(['\'', '"', '`', '\u{2018}', '\u{2019}'])
        .skip(1)
        .step_by(2)
        .find(|text| text.contains('/') || text.starts_with('.'));
    let word = || {
        line.split_whitespace()
            .map(|word| word.trim_end_matches([':', ',', ')', ']']).trim_start_matches(['(', '[']))
            .rfind(|word| word.contains('/') || (word.starts_with('.') && word.len() > 1))
    };
    quoted.or_else(word).map(PathBuf::from)
}
