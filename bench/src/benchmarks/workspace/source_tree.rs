//! A large tree of small files that look like sources, always the same. It is made once and then kept.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, WhileDoing};
use crate::programs::Programs;

pub(crate) const FILES: usize = 100_000;
const FILES_PER_DIRECTORY: usize = 50;
const DIRECTORIES_PER_CRATE: usize = 20;
/// Lines per file, about 1 KiB.
const LINES: usize = 24;
/// The version of the tree; a tree of another version is made again.
const MAKING: &str = "1";

/// A pattern that matches in one of 10 000 files.
pub(crate) const RARE: &str = "quokka_[a-z]+";
pub(crate) const RARE_HITS: usize = FILES / 10_000;
/// A pattern that matches one line of every other file.
pub(crate) const COMMON: &str = "fn handle_[a-z]+_event";
pub(crate) const COMMON_HITS: usize = FILES / 2;

const WORDS: [&str; 16] = [
    "buffer", "request", "session", "cursor", "header", "packet", "record", "window", "socket", "handler",
    "parser", "writer", "reader", "counter", "channel", "router",
];

pub(crate) fn make_once(programs: &Programs) -> Result<PathBuf, Error> {
    let tree = programs.work_directory.join("source-tree");
    let made = programs.work_directory.join("source-tree.made");
    if fs::read_to_string(&made).is_ok_and(|making| making == MAKING) {
        return Ok(tree);
    }
    eprintln!("making {FILES} files in {} …", tree.display());
    if tree.exists() {
        fs::remove_dir_all(&tree).while_doing("clearing the tree")?;
    }
    for number in 0..FILES {
        let file = tree.join(path_of(number));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).while_doing("making the tree")?;
        }
        fs::write(&file, text_of(number)).while_doing("making the tree")?;
    }
    fs::write(made, MAKING)?;
    Ok(tree)
}

fn path_of(number: usize) -> String {
    let directory = number / FILES_PER_DIRECTORY;
    let package = directory / DIRECTORIES_PER_CRATE;
    format!("package_{package:03}/src/part_{directory:04}/unit_{number:06}.rs")
}

fn text_of(number: usize) -> String {
    let mut text = format!("//! Unit {number} of the tree.\n");
    let mut state = number as u64 + 1;
    for line in 0..LINES {
        let mut word = || {
            // Any fixed sequence will do; this is Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            WORDS[usize::try_from(state >> 60).unwrap_or(0)]
        };
        let (one, two, three) = (word(), word(), word());
        // Writing to a string cannot fail.
        let _ = match line {
            5 if number.is_multiple_of(2) => writeln!(text, "fn handle_{one}_event(_: &{two}) {{}}"),
            9 if number.is_multiple_of(FILES / RARE_HITS) => writeln!(text, "    let quokka_{one} = 1;"),
            _ => writeln!(text, "    let {one}_{line} = {two}.{three}(index, {number});"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_always_gives_the_same_file() {
        assert_eq!(text_of(7), text_of(7));
        assert_eq!(path_of(123_456), "package_123/src/part_2469/unit_123456.rs");
        assert_eq!(text_of(20_000).matches("quokka_").count(), 1);
        assert_eq!(text_of(2).matches("fn handle_").count(), 1);
        assert_eq!(text_of(3).matches("fn handle_").count(), 0);
    }
}
