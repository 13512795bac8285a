//! The files that sessions of the benchmark work on: the same in every leg, each leg with its own copy.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, WhileDoing};
use crate::programs::Programs;

/// Lines per file, about 2 KiB.
const LINES: usize = 32;
const LISTED_FILES: usize = 20;
const MODULES: usize = 10;
const FILES_PER_MODULE: usize = 20;

pub(crate) const READ_FILE: &str = "read.txt";
pub(crate) const WRITTEN_FILE: &str = "written.txt";
pub(crate) const EDITED_FILE: &str = "edited.txt";
pub(crate) const LISTED_DIRECTORY: &str = "listed";
/// A word that occurs in one file only.
pub(crate) const RARE_WORD: &str = "quokka";

/// Creates the directory of a leg in its initial state.
pub(crate) fn make_scope(programs: &Programs, name: &str) -> Result<PathBuf, Error> {
    let scope = programs.scopes.join(name);
    if scope.exists() {
        fs::remove_dir_all(&scope).while_doing("clearing a scope")?;
    }
    fs::create_dir_all(scope.join(LISTED_DIRECTORY)).while_doing("making a scope")?;
    fs::write(scope.join(READ_FILE), text_of(0))?;
    fs::write(scope.join(WRITTEN_FILE), text_of(0))?;
    fs::write(scope.join(EDITED_FILE), text_of(0))?;
    for number in 0..LISTED_FILES {
        fs::write(scope.join(LISTED_DIRECTORY).join(format!("entry-{number:02}.txt")), text_of(number))?;
    }
    for path in module_files() {
        let file = scope.join(&path);
        fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).while_doing("making a scope")?;
        let rare =
            if path.ends_with("unit_07.rs") && path.starts_with("src/module_3") { RARE_WORD } else { "" };
        fs::write(file, format!("{}{rare}\n", text_of(path.as_os_str().len())))?;
    }
    scope.canonicalize().while_doing("finding the scope")
}

/// The paths of the source files, relative to a scope.
pub(crate) fn module_files() -> Vec<PathBuf> {
    let of_module = |module: usize| {
        (0..FILES_PER_MODULE).map(move |unit| format!("src/module_{module}/unit_{unit:02}.rs").into())
    };
    (0..MODULES).flat_map(of_module).collect()
}

/// A text of 2 KiB; two versions differ in one line.
pub(crate) fn text_of(version: usize) -> String {
    let mut text = String::new();
    for number in 0..LINES {
        let version = if number == LINES / 2 { version } else { 0 };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line_of(number, version));
    }
    text
}

/// The line in which two versions differ.
pub(crate) fn changing_line(version: usize) -> String {
    line_of(LINES / 2, version)
}

fn line_of(number: usize, version: usize) -> String {
    format!("let value_{number:03} = compute(input[{number:03}], {version:08}) + offset; // {number:04}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ_in_the_changing_line_only() {
        let (one, other) = (text_of(1), text_of(2));
        assert!((1800..2300).contains(&one.len()), "{}", one.len());
        assert_eq!(one.replace(&changing_line(1), &changing_line(2)), other);
        assert_eq!(module_files().len(), 200);
    }
}
