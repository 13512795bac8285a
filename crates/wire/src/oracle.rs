//! What must hold for any bytes that reach the parsers of this crate. Called by the fuzz target `wire` and, with the
//! corpus that it kept, by a test.
//!
//! The first byte chooses the parser: `s` is for server-sent events and `l` for lines, each with two more bytes for
//! the limit and for where the reads fall. Anything else is a body.

mod framing;
mod messages;
mod tree;

/// Panics if a parser breaks a promise on this input.
pub fn check(data: &[u8]) {
    match data {
        [b's', limit, read, text @ ..] => framing::check_events(usize::from(*limit), pieces(text, *read)),
        [b'l', limit, read, text @ ..] => framing::check_lines(usize::from(*limit) * 4, pieces(text, *read)),
        text => messages::check_body(text),
    }
}

/// A text, and the reads in which it arrives.
struct Pieces<'a> {
    whole: &'a [u8],
    reads: Vec<&'a [u8]>,
}

/// Cuts a text into reads of one length; 0 is a single read.
fn pieces(whole: &[u8], length: u8) -> Pieces<'_> {
    let reads = match usize::from(length) {
        0 => vec![whole],
        length => whole.chunks(length).collect(),
    };
    Pieces { whole, reads }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzing_kept_is_read_as_promised() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire");
        let mut files = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0);
    }
}
