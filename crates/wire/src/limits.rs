//! The bounds on messages from clients and upstreams, and the check of nesting.

use memchr::{memchr2, memchr2_iter};

/// Longest message accepted from a client or an upstream unless configured otherwise. Large enough for the
/// images and files that tools return today, small enough that a hostile line cannot fill memory.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Deepest nesting of objects and arrays. Real tool schemas stay below 40; parsers on the other side of
/// the gateway commonly give up at 128 to 1000.
pub(crate) const MAX_DEPTH: usize = 128;

/// Most messages in one batch (2025-03-26 only).
pub const MAX_BATCH: usize = 128;

/// Longest id. Ids are kept for the life of a call, so they have a bound of their own.
pub(crate) const MAX_ID_BYTES: usize = 1024;

/// Returns true if well-formed JSON nests deeper than [`MAX_DEPTH`].
pub(crate) fn is_too_deep(json: &str) -> bool {
    let bytes = json.as_bytes();
    // Fast path: most messages have fewer brackets altogether.
    if memchr2_iter(b'{', b'[', bytes).nth(MAX_DEPTH).is_none() {
        return false;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at + 1),
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    false
}

/// The index of the quote that closes the string whose content begins at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_structure_and_not_text() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
        let in_a_string = format!(r#"{{"a":"\"{}","b":"\\"}}"#, "[".repeat(MAX_DEPTH * 2));
        assert!(!is_too_deep(&in_a_string));
        let siblings = format!("[{}{{}}]", "[],".repeat(MAX_DEPTH * 2));
        assert!(!is_too_deep(&siblings));
    }
}
