//! The output of a command. Keeps its beginning and its end, and only counts what is between them.
//!
//! The beginning shows what was attempted, the end how it went; a build that writes 50 MB between them must not
//! cost 50 MB. Memory grows with the output, up to both limits.

use std::collections::VecDeque;

/// How far a cut may move to fall between two lines.
const LINE_SEARCH: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

/// The kept output: both ends, and how many bytes are missing between them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) head: Vec<u8>,
    pub(super) omitted: u64,
    pub(super) tail: Vec<u8>,
}

impl Capture {
    pub(super) fn new(head_limit: usize, tail_limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), head_limit, tail_limit, total: 0 }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..surplus);
        self.make_room(rest.len());
        self.tail.extend(rest);
    }

    /// Grows in large steps, but not beyond the limit as doubling would.
    fn make_room(&mut self, bytes: usize) {
        let needed = self.tail.len() + bytes;
        if needed > self.tail.capacity() {
            let target = (needed * 2).min(self.tail_limit);
            self.tail.reserve_exact(target - self.tail.len());
        }
    }

    /// The size of the whole output.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of output that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Both ends. If something was left out, each is cut at a line break if one is near, and otherwise between two
    /// characters.
    pub(super) fn kept(&self) -> Kept {
        let mut head = self.head.clone();
        let mut tail: Vec<u8> = self.tail.iter().copied().collect();
        let missing = self.total - (head.len() + tail.len()) as u64;
        if missing == 0 {
            head.append(&mut tail);
            return Kept { head, omitted: 0, tail };
        }
        head.truncate(end_of_whole_lines(&head));
        tail.drain(..start_of_whole_lines(&tail));
        Kept { omitted: self.total - (head.len() + tail.len()) as u64, head, tail }
    }

    /// The output after `position`, at most its newest `limit` bytes, without partial characters at either end; and
    /// the position to continue from.
    pub(super) fn since(&self, position: u64, limit: usize) -> (Vec<u8>, u64) {
        let wanted = usize::try_from(self.total.saturating_sub(position)).unwrap_or(usize::MAX);
        let count = wanted.min(limit);
        let from_tail = count.min(self.tail.len());
        // Until something is left out, head and tail are contiguous.
        let from_head = if self.total == self.kept_bytes() as u64 { count - from_tail } else { 0 };
        let mut bytes = self.head[self.head.len() - from_head.min(self.head.len())..].to_vec();
        bytes.extend(self.tail.range(self.tail.len() - from_tail..));
        let held_back = bytes.len() - end_of_whole_characters(&bytes);
        bytes.truncate(bytes.len() - held_back);
        if count < wanted {
            bytes.drain(..start_of_whole_characters(&bytes));
        }
        (bytes, self.total - held_back as u64)
    }
}

fn end_of_whole_lines(bytes: &[u8]) -> usize {
    let near = &bytes[bytes.len().saturating_sub(LINE_SEARCH)..];
    match near.iter().rposition(|&byte| byte == b'\n') {
        Some(newline) => bytes.len() - near.len() + newline + 1,
        None => end_of_whole_characters(bytes),
    }
}

fn start_of_whole_lines(bytes: &[u8]) -> usize {
    let near = &bytes[..bytes.len().min(LINE_SEARCH)];
    near.iter()
        .position(|&byte| byte == b'\n')
        .map_or_else(|| start_of_whole_characters(bytes), |newline| newline + 1)
}

/// The end of the last complete character. Bytes that are not UTF-8 count as complete.
fn end_of_whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(4) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => 1,
        };
        return if length > back { bytes.len() - back } else { bytes.len() };
    }
    bytes.len()
}

fn start_of_whole_characters(bytes: &[u8]) -> usize {
    let continuation = bytes.iter().take_while(|&&byte| (0x80..=0xBF).contains(&byte)).count();
    // A character has at most three continuation bytes; more of them are not UTF-8.
    if continuation <= 3 { continuation } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_output_is_kept_whole() {
        let mut capture = Capture::new(4, 4);
        capture.append(b"abc");
        capture.append(b"defgh");
        assert_eq!(capture.kept(), Kept { head: b"abcdefgh".to_vec(), omitted: 0, tail: Vec::new() });
    }

    #[test]
    fn much_output_is_cut_between_lines() {
        let mut capture = Capture::new(10, 10);
        for number in 10..100 {
            capture.append(format!("{number}\n").as_bytes());
        }
        let kept = capture.kept();
        assert_eq!(kept.head, b"10\n11\n12\n");
        assert_eq!(kept.tail, b"97\n98\n99\n");
        assert_eq!(kept.omitted, 270 - 18);
    }

    #[test]
    fn characters_are_not_split_at_the_seams() {
        let mut capture = Capture::new(10, 10);
        capture.append("€".repeat(20).as_bytes());
        let kept = capture.kept();
        assert_eq!((kept.head.as_slice(), kept.tail.as_slice()), ("€€€".as_bytes(), "€€€".as_bytes()));
        assert_eq!(kept.omitted, 60 - 18);
    }

    #[test]
    fn memory_stays_within_the_limits() {
        let mut capture = Capture::new(1000, 3000);
        for _ in 0..10_000 {
            capture.append(&[b'x'; 777]);
        }
        assert_eq!(capture.total(), 7_770_000);
        assert_eq!(capture.kept_bytes(), 4000);
        assert!(capture.tail.capacity() <= 3000, "{}", capture.tail.capacity());
        // One piece that is larger than both limits.
        capture.append(&vec![b'y'; 100_000]);
        assert_eq!(capture.kept_bytes(), 4000);
    }

    #[test]
    fn new_output_is_told_once_and_in_whole_characters() {
        let mut capture = Capture::new(4, 100);
        let euro = "€".as_bytes();
        capture.append(b"abcdef");
        capture.append(&euro[..2]);
        let (new, position) = capture.since(0, 1000);
        assert_eq!((new.as_slice(), position), (b"abcdef".as_slice(), 6));
        capture.append(&euro[2..]);
        let (new, position) = capture.since(position, 1000);
        assert_eq!((new.as_slice(), position), (euro, 9));
        assert_eq!(capture.since(position, 1000), (Vec::new(), 9));
    }

    #[test]
    fn of_much_new_output_the_newest_is_told() {
        let mut capture = Capture::new(4, 8);
        capture.append("0123€€€€".as_bytes());
        let (new, position) = capture.since(2, 7);
        assert_eq!((new.as_slice(), position), ("€€".as_bytes(), 16));
        capture.append(&[b'x'; 100]);
        assert_eq!(capture.since(position, 1000), (vec![b'x'; 8], 116));
    }
}
