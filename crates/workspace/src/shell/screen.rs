//! Renders output as a terminal would finally show it: without colours and cursor movements, and with only the
//! last state of a progress bar.

use std::fmt::Write;

use super::capture::Kept;

/// The kept output as text, with a line that tells how much is missing.
pub(super) fn show(kept: &Kept) -> String {
    let mut text = plain(&kept.head);
    if kept.omitted > 0 {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "[... {} bytes left out here ...]", kept.omitted);
        text.push_str(&plain(&kept.tail));
    }
    text
}

/// Bytes that a command wrote, as plain text.
pub(super) fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.chars().any(|character| character != '\n' && character != '\t' && character.is_control()) {
        return text.into_owned();
    }
    let mut screen = Screen { shown: String::with_capacity(text.len()), ..Screen::default() };
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => screen.escape(&mut characters),
            '\n' => screen.end_line(),
            '\r' => screen.column = 0,
            '\x08' => screen.column = screen.column.saturating_sub(1),
            '\t' => screen.put('\t'),
            control if control.is_control() => {}
            character => screen.put(character),
        }
    }
    screen.shown.extend(screen.line);
    screen.shown
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

#[derive(Default)]
struct Screen {
    /// Finished lines.
    shown: String,
    /// The current line, and the cursor in it. The cursor never moves beyond the end, so that a short escape
    /// sequence cannot produce much text.
    line: Vec<char>,
    column: usize,
}

impl Screen {
    fn put(&mut self, character: char) {
        match self.line.get_mut(self.column) {
            Some(place) => *place = character,
            None => self.line.push(character),
        }
        self.column += 1;
    }

    fn end_line(&mut self) {
        self.shown.extend(self.line.drain(..));
        self.shown.push('\n');
        self.column = 0;
    }

    /// Moves to a column. One blank stands for any distance beyond the end of the line.
    fn move_to(&mut self, column: usize) {
        if column > self.line.len() {
            self.line.push(' ');
        }
        self.column = column.min(self.line.len());
    }

    fn escape(&mut self, characters: &mut Characters<'_>) {
        match characters.next() {
            Some('[') => self.control_sequence(characters),
            // Titles, links and the like: skips to their end, or to that of the line if it is missing.
            Some(']' | 'P' | 'X' | '^' | '_') => skip_string(characters),
            // Character sets: skips one more character.
            Some('(' | ')' | '*' | '+' | '#' | '%') => {
                characters.next_if(|next| !next.is_control());
            }
            _ => {}
        }
    }

    fn control_sequence(&mut self, characters: &mut Characters<'_>) {
        let mut parameters = String::new();
        while let Some(parameter) = characters.next_if(|next| (' '..='?').contains(next)) {
            // No sequence that matters here has longer parameters.
            if parameters.len() < 16 {
                parameters.push(parameter);
            }
        }
        let Some(action) = characters.next_if(|next| ('@'..='~').contains(next)) else { return };
        let number: Option<usize> = parameters.parse().ok();
        match action {
            'K' => self.erase_in_line(number.unwrap_or(0)),
            'G' => self.move_to(number.unwrap_or(1).saturating_sub(1)),
            'C' => self.move_to(self.column.saturating_add(number.unwrap_or(1).max(1))),
            'D' => self.column = self.column.saturating_sub(number.unwrap_or(1).max(1)),
            _ => {}
        }
    }

    fn erase_in_line(&mut self, which: usize) {
        match which {
            0 => self.line.truncate(self.column),
            1 => {
                let end = self.line.len().min(self.column + 1);
                self.line[..end].fill(' ');
            }
            _ => {
                self.line.clear();
                self.column = 0;
            }
        }
    }
}

fn skip_string(characters: &mut Characters<'_>) {
    while let Some(character) = characters.next_if(|next| *next != '\n') {
        match character {
            '\x07' | '\u{9c}' => return,
            '\x1b' => {
                characters.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &str, expected: &str) {
        assert_eq!(plain(written.as_bytes()), expected, "{written:?}");
    }

    #[test]
    fn plain_text_stays() {
        check("one\n\ttwo  \n\nthree", "one\n\ttwo  \n\nthree");
    }

    #[test]
    fn colours_titles_and_links_vanish() {
        check("\x1b[1;31mred\x1b[0m text", "red text");
        check("\x1b]0;a title\x07text", "text");
        check("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link");
        check("\x1b(Btext\x1b7\x1b8", "text");
        check("lost \x1b]0;end\nnext", "lost \nnext");
    }

    #[test]
    fn a_progress_bar_shows_what_it_showed_last() {
        check(" 10%\r 50%\r100%\ndone\n", "100%\ndone\n");
        check("downloading\r\x1b[Kdone\n", "done\n");
        check("downloading\x1b[2K\rdone\n", "done\n");
        check("downloading\x1b[1Gdone\n", "doneloading\n");
    }

    #[test]
    fn lines_of_other_systems_stay_whole() {
        check("one\r\ntwo\r\n", "one\ntwo\n");
    }

    #[test]
    fn backspaces_are_obeyed() {
        check("|\x08/\x08-\x08done", "done");
    }

    #[test]
    fn far_movements_do_not_become_much_text() {
        check("\x1b[99999999Cx\x1b[99999999999999999999Gy", " x y");
        check("a\x1b[5Cb", "a b");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(plain(b"a\xffb\0c"), "a\u{fffd}bc");
    }

    #[test]
    fn what_is_missing_is_said_on_a_line_of_its_own() {
        let kept = Kept { head: b"begin".to_vec(), omitted: 7, tail: b"end".to_vec() };
        assert_eq!(show(&kept), "begin\n[... 7 bytes left out here ...]\nend");
    }

    proptest::proptest! {
        #[test]
        fn text_is_bounded_and_without_controls(bytes in proptest::collection::vec(
            proptest::prop_oneof![proptest::num::u8::ANY, proptest::sample::select(b"\x1b[]0;9KGCD\r\n\x08".to_vec())],
            0..400,
        )) {
            let text = plain(&bytes);
            proptest::prop_assert!(text.chars().count() <= bytes.len());
            proptest::prop_assert!(text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        }
    }
}
