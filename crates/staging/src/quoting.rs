//! Names in diffs, quoted as git does where they are not plain text.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Quotes a path with the prefix that diffs put before it. UTF-8 stays as it is; what a terminal obeys does not.
pub(crate) fn quote(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = |letter: char| !letter.is_control() && !matches!(letter, '"' | '\\') && !reorders(letter);
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(is_plain)
    {
        return format!("{prefix}{text}");
    }
    let mut quoted = format!("\"{prefix}");
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => quoted.extend(['\\', letter]),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                letter if is_plain(letter) => quoted.push(letter),
                letter => {
                    letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| quoted.push_str(&octal(byte)));
                }
            }
        }
        chunk.invalid().iter().for_each(|byte| quoted.push_str(&octal(*byte)));
    }
    quoted.push('"');
    quoted
}

fn octal(byte: u8) -> String {
    format!("\\{byte:03o}")
}

/// Characters that show a name in another order than it is written.
fn reorders(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_are_quoted_as_git_does() {
        let quote = |bytes: &[u8]| super::quote("a/", Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(quote("plain name/ü".as_bytes()), "a/plain name/ü");
        assert_eq!(quote(b"new\nline\t\"q\"\\"), r#""a/new\nline\t\"q\"\\""#);
        assert_eq!(quote(b"\xffx\x1b"), r#""a/\377x\033""#);
        assert_eq!(quote("e\u{202e}txt.sh".as_bytes()), r#""a/e\342\200\256txt.sh""#);
    }
}
