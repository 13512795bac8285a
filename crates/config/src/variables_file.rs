//! Reads the file that `envFile` names: one `NAME=value` per line.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Far longer than any such file.
const MAX_BYTES: u64 = 1 << 20;

/// The variables of a file, in its order. They are probably secrets: do not print them.
pub fn read_variables(path: &Path) -> io::Result<Vec<(String, String)>> {
    // Does not follow a link, and does not wait for the writer of a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file, or longer than 1 MiB"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text.lines().filter_map(variable).collect())
}

/// Reads `NAME=value`, optionally after `export` and with the value in quotes. Nothing is expanded. Any other line
/// counts as a comment.
fn variable(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    let bare = || value.split_once(" #").map_or(value, |(value, _)| value.trim_end()).to_owned();
    let value = match value.chars().next() {
        Some('"') => within(value, '"').map(unescaped),
        Some('\'') => within(value, '\'').map(str::to_owned),
        _ => None,
    };
    is_name.then(|| (name.to_owned(), value.unwrap_or_else(bare)))
}

/// The text between the quote at the beginning and the next one.
fn within(value: &str, quote: char) -> Option<&str> {
    let inside = &value[1..];
    let mut is_escaped = false;
    let end = inside.find(|c| {
        let ends = c == quote && !is_escaped;
        is_escaped = quote == '"' && c == '\\' && !is_escaped;
        ends
    })?;
    Some(&inside[..end])
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        let meant = match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                escaped => escaped.unwrap_or('\\'),
            },
            c => c,
        };
        plain.push(meant);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_variables_or_comments() {
        let read = |line: &str| variable(line).map(|(name, value)| format!("{name}={value}"));
        for (line, expected) in [
            ("A=1", Some("A=1")),
            ("  export B_2 = two words  ", Some("B_2=two words")),
            ("C=", Some("C=")),
            ("D=a=b#c # note", Some("D=a=b#c")),
            (r#"E=" #1\n\"q\" ${HOME}" # note"#, Some("E= #1\n\"q\" ${HOME}")),
            (r"F='\n $x'", Some(r"F=\n $x")),
            ("G=\"never closed", Some("G=\"never closed")),
            ("# H=1", None),
            ("1I=1", None),
            ("J K=1", None),
            ("nothing", None),
            ("", None),
        ] {
            assert_eq!(read(line).as_deref(), expected, "{line}");
        }
    }
}
