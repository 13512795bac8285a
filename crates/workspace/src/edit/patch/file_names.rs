//! Reads file names in patches: quoted or not, with `a/` and `b/` prefixes, followed by a time.

/// A name after `--- ` or `+++ `; `None` is `/dev/null`.
pub(crate) fn from_header(text: &str) -> Option<String> {
    let name = if text.starts_with('"') {
        unquote(text).map(|(name, _)| name)
    } else {
        // What follows a tab is a time.
        text.split('\t').next().map(|name| name.trim_end().to_owned())
    };
    name.filter(|name| name != "/dev/null")
}

/// A name that fills the rest of a line, as after `rename from `.
pub(crate) fn alone(text: &str) -> String {
    unquote(text).map_or_else(|| text.trim_end().to_owned(), |(name, _)| name)
}

/// The two names of `diff --git a/x b/y`, if it is clear where the first ends.
pub(crate) fn from_git_line(text: &str) -> Option<(String, String)> {
    if let Some((old, rest)) = unquote(text) {
        return Some((old, alone(rest.trim_start())));
    }
    if let Some(at) = text.find(" \"") {
        return Some((text[..at].to_owned(), alone(&text[at + 1..])));
    }
    // An unquoted name may contain blanks; then both names must be the same except for their prefix.
    let cuts = || text.match_indices(' ').map(|(at, _)| (&text[..at], text[at + 1..].trim_end()));
    let same = cuts()
        .find(|(old, new)| old.strip_prefix("a/").unwrap_or(old) == new.strip_prefix("b/").unwrap_or(new));
    let mut all = cuts();
    let only = all.next().filter(|_| all.next().is_none());
    same.or(only).map(|(old, new)| (old.to_owned(), new.to_owned()))
}

/// Strips `a/` and `b/` if every given name has its prefix.
pub(crate) fn strip_prefixes(old: Option<String>, new: Option<String>) -> (Option<String>, Option<String>) {
    let is_prefixed = old.as_ref().is_none_or(|name| name.starts_with("a/"))
        && new.as_ref().is_none_or(|name| name.starts_with("b/"));
    let strip = |name: String| if is_prefixed { name[2..].to_owned() } else { name };
    (old.map(strip), new.map(strip))
}

/// Reads a quoted name with C escapes; returns it and the rest of the line.
fn unquote(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let bytes = inner.as_bytes();
    let mut name = Vec::new();
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some((String::from_utf8(name).ok()?, &inner[at + 1..])),
            b'\\' => {
                let (byte, length) = escape(&bytes[at + 1..])?;
                name.push(byte);
                at += 1 + length;
            }
            byte => {
                name.push(byte);
                at += 1;
            }
        }
    }
}

/// The byte that an escape stands for, and how long it is without its backslash.
fn escape(bytes: &[u8]) -> Option<(u8, usize)> {
    let plain = match bytes.first()? {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        other @ (b'"' | b'\\') => *other,
        _ => {
            let digits = std::str::from_utf8(bytes.get(..3)?).ok()?;
            return u8::from_str_radix(digits, 8).ok().map(|byte| (byte, 3));
        }
    };
    Some((plain, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_quotes_times_and_null() {
        assert_eq!(from_header("a/x y.rs\t2024-01-01 00:00:00").as_deref(), Some("a/x y.rs"));
        assert_eq!(from_header("/dev/null"), None);
        assert_eq!(from_header(r#""a/\303\244\t\"x\\.rs""#).as_deref(), Some("a/ä\t\"x\\.rs"));
        assert_eq!(alone("x y "), "x y");
    }

    #[test]
    fn the_names_of_a_git_line_are_told_apart() {
        let names = |text| from_git_line(text).unwrap();
        assert_eq!(names("a/x b/x"), ("a/x".into(), "b/x".into()));
        assert_eq!(names("a/x y b/x y"), ("a/x y".into(), "b/x y".into()));
        assert_eq!(names("a/x b/y"), ("a/x".into(), "b/y".into()));
        assert_eq!(names(r#""a/\t" "b/\t""#), ("a/\t".into(), "b/\t".into()));
        assert_eq!(from_git_line("a/x y b/z w"), None, "it is not clear where the first name ends");
    }

    #[test]
    fn prefixes_go_only_where_they_are_prefixes() {
        let strip = |old: &str, new: &str| strip_prefixes(Some(old.into()), Some(new.into()));
        assert_eq!(strip("a/x", "b/x"), (Some("x".into()), Some("x".into())));
        assert_eq!(strip("a/x", "a/x"), (Some("a/x".into()), Some("a/x".into())));
        assert_eq!(strip_prefixes(None, Some("b/x".into())), (None, Some("x".into())));
    }
}
