//! The comments of a source file, which its syntax tree does not have.

/// One line of a comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommentLine<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// All lines of all comments. Strings and characters that look like comments are passed over.
pub(super) fn comment_lines(text: &str) -> Vec<CommentLine<'_>> {
    let mut found = Vec::new();
    let mut rest = 0;
    while rest < text.len() {
        let here = &text[rest..];
        let length = if here.starts_with("//") {
            let length = here.find('\n').unwrap_or(here.len());
            add(text, rest, length, &mut found);
            length
        } else if here.starts_with("/*") {
            let length = block_comment(here);
            add(text, rest, length, &mut found);
            length
        } else {
            literal(here).unwrap_or_else(|| word(here))
        };
        rest += length.max(1);
    }
    found
}

fn add<'a>(text: &'a str, start: usize, length: usize, found: &mut Vec<CommentLine<'a>>) {
    let first = text[..start].matches('\n').count() + 1;
    let lines = text[start..start + length].lines().enumerate();
    found.extend(lines.map(|(number, text)| CommentLine { line: first + number, text }));
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let here = &text[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a string or character literal at the start of the text.
fn literal(text: &str) -> Option<usize> {
    let after_prefix = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - after_prefix.len();
    if let Some(raw) = after_prefix.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &raw[hashes + 1..];
            let length = body.find(&end).map_or(body.len(), |at| at + end.len());
            return Some(prefix + 1 + hashes + 1 + length);
        }
    }
    if let Some(body) = after_prefix.strip_prefix('"') {
        return Some(prefix + 1 + quoted(body, '"'));
    }
    let body = after_prefix.strip_prefix('\'')?;
    let mut characters = body.chars();
    let (first, second) = (characters.next()?, characters.next());
    // `'a` without a second quote is a lifetime.
    (first == '\\' || second == Some('\'')).then(|| prefix + 1 + quoted(body, '\''))
}

/// The length up to and with the closing quote.
fn quoted(body: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in body.char_indices() {
        if !is_escaped && character == quote {
            return at + 1;
        }
        is_escaped = !is_escaped && character == '\\';
    }
    body.len()
}

/// A whole word, so that the `r` of `for"` is not taken for a prefix.
fn word(text: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    if end == 0 { text.chars().next().map_or(1, char::len_utf8) } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_found_and_strings_are_not() {
        let text = "//! one\nlet a = \"// no \\\" // no\"; // two\nlet b = r#\"// no\"#; let c = '\"'; /// three\n\
                    /* four /* five\n*/ six */ let d: &'a str = \"é\"; let e = b'\\''; // seven";
        let found = comment_lines(text);
        let lines: Vec<(usize, &str)> = found.iter().map(|comment| (comment.line, comment.text)).collect();
        assert_eq!(
            lines,
            [
                (1, "//! one"),
                (2, "// two"),
                (3, "/// three"),
                (4, "/* four /* five"),
                (5, "*/ six */"),
                (5, "// seven")
            ]
        );
    }
}
