//! The acceptance test of the merge: an edit that elides unchanged lines, with one line of context on each side,
//! gives exactly the intended text or an error, never a third text.
//!
//! A shortest diff decides which lines are unchanged. Where lines repeat there are several; like `git diff`, the
//! test takes the one that keeps the first of equal lines.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::*;

const MARKER: &str = "  // ... existing code ...";

/// What happens to a line.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Keep,
    Delete,
    Insert,
}

/// How the author of an edit finds the unchanged lines.
#[derive(Clone, Copy, Debug)]
struct Writer {
    algorithm: Algorithm,
    /// Moves deletions as far down as they go, as `git diff` does, so that the first of equal lines stay.
    keeps_first: bool,
}

/// A diff as steps.
fn steps(old: &[&str], new: &[&str], writer: Writer) -> Vec<Step> {
    let mut steps = Vec::new();
    for op in capture_diff_slices(writer.algorithm, old, new) {
        if let DiffOp::Equal { len, .. } = op {
            steps.extend(vec![Step::Keep; len]);
        } else {
            steps.extend(vec![Step::Delete; op.old_range().len()]);
            steps.extend(vec![Step::Insert; op.new_range().len()]);
        }
    }
    while let Some((start, end)) = movable(old, &steps).filter(|_| writer.keeps_first) {
        steps.swap(start, end);
    }
    steps
}

/// Finds a deletion, without insertions, whose first line equals the line that is kept after it.
fn movable(old: &[&str], steps: &[Step]) -> Option<(usize, usize)> {
    let mut line = 0;
    let mut group: Option<(usize, usize)> = None;
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Delete => {
                let is_first = at == 0 || steps[at - 1] == Step::Keep;
                group = if is_first { Some((at, line)) } else { group };
            }
            Step::Insert => group = None,
            Step::Keep => {
                let equal = group.take().filter(|(_, first)| old[*first] == old[line]);
                if let Some((start, _)) = equal {
                    return Some((start, at));
                }
            }
        }
        line += usize::from(*step != Step::Insert);
    }
    None
}

/// Writes the edit that turns `old` into `new`; `None` if they are equal or nothing can be elided.
///
/// Blank lines are no context, so they are written in addition to the line of context.
fn elide(old: &[&str], new: &[&str], writer: Writer) -> Option<String> {
    let steps = steps(old, new, writer);
    let groups: Vec<_> = steps.chunk_by(|one, next| (*one == Step::Keep) == (*next == Step::Keep)).collect();
    let last = groups.len().checked_sub(1)?;
    let mut edit: Vec<&str> = Vec::new();
    let mut rest = new;
    for (number, group) in groups.iter().enumerate() {
        let written;
        (written, rest) = rest.split_at(group.iter().filter(|step| **step != Step::Delete).count());
        if group[0] != Step::Keep {
            edit.extend(written);
            continue;
        }
        let is_context = |line: &&str| !line.trim().is_empty();
        let before = written.iter().position(is_context).map_or(usize::MAX, |at| at + 1);
        let before = if number == 0 { 0 } else { before };
        let after = written.iter().rposition(is_context).unwrap_or(0);
        let after = if number == last { written.len() } else { after };
        if before < after {
            edit.extend(&written[..before]);
            edit.push(MARKER);
            edit.extend(&written[after..]);
        } else {
            edit.extend(written);
        }
    }
    (old != new && edit.contains(&MARKER)).then(|| edit.join("\n") + "\n")
}

/// Counts the outcomes.
#[derive(Debug, Default)]
struct Tally {
    exact: Cell<u32>,
    refused: Cell<u32>,
}

fn check(tally: &Tally, old: &[&str], new: &[&str], writer: Writer) -> Result<(), TestCaseError> {
    let Some(edit) = elide(old, new, writer) else { return Ok(()) };
    let original = format!("{}\n", old.join("\n"));
    let result = merge(&original, &edit);
    prop_assert_eq!(&result, &merge(&original, &edit), "the same input gives the same bytes");
    match result {
        Ok(text) => {
            let meant = if new.is_empty() { String::new() } else { format!("{}\n", new.join("\n")) };
            prop_assert_eq!(text, meant, "a third text, from {:?}", edit);
            tally.exact.set(tally.exact.get() + 1);
        }
        Err(_) => tally.refused.set(tally.refused.get() + 1),
    }
    Ok(())
}

/// One change: `(at, remove, insert)`.
type Change = (prop::sample::Index, usize, Vec<&'static str>);

fn changed(old: &[&'static str], changes: &[Change]) -> Vec<&'static str> {
    let mut new = old.to_vec();
    for (at, remove, insert) in changes {
        let at = at.index(new.len() + 1);
        let end = (at + remove).min(new.len());
        new.splice(at..end, insert.iter().copied());
    }
    new
}

fn pairs(
    old: impl Strategy<Value = Vec<&'static str>>,
    alphabet: &'static [&'static str],
) -> impl Strategy<Value = (Vec<&'static str>, Vec<&'static str>)> {
    let line = move || prop::sample::select(alphabet);
    let change = (any::<prop::sample::Index>(), 0..4usize, prop::collection::vec(line(), 0..4));
    (old, prop::collection::vec(change, 1..4)).prop_map(|(old, changes)| {
        let new = changed(&old, &changes);
        (old, new)
    })
}

fn run(pairs: impl Strategy<Value = (Vec<&'static str>, Vec<&'static str>)>, writer: Writer) -> Tally {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(CASES) });
    let tally = Tally::default();
    runner.run(&pairs, |(old, new)| check(&tally, &old, &new, writer)).unwrap();
    tally
}

/// Cases for each kind of lines and each diff algorithm; well over 20,000 together.
const CASES: u32 = 10_000;

/// Algorithms that find a shortest diff.
const SHORTEST: [Algorithm; 3] = [Algorithm::Myers, Algorithm::Lcs, Algorithm::Hunt];

#[test]
fn lines_that_repeat_give_the_meant_text_or_an_error() {
    let few: &[&str] = &["a", "b", "c"];
    let with_blanks: &[&str] = &["a", "b", "", "}", "a "];
    let code: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h", "}", "}", ""];
    for algorithm in SHORTEST {
        for (alphabet, length) in [(few, 12), (with_blanks, 14), (code, 24)] {
            let old = prop::collection::vec(prop::sample::select(alphabet), 1..length);
            let tally = run(pairs(old, alphabet), Writer { algorithm, keeps_first: true });
            assert!(tally.exact.get() > 0 && tally.refused.get() > 0, "both happen: {tally:?}");
        }
    }
}

/// If each line of the file is unique, any diff works, even if new lines repeat lines of the file.
#[test]
fn lines_that_occur_once_give_the_meant_text_with_any_diff() {
    let letters: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let others = [Algorithm::Patience, Algorithm::Histogram];
    for algorithm in SHORTEST.into_iter().chain(others) {
        let old = Just(letters.to_vec()).prop_shuffle();
        let tally = run(pairs(old, letters), Writer { algorithm, keeps_first: false });
        assert_eq!(tally.refused.get(), 0, "{tally:?}");
    }
}

/// Includes edits that make no sense: only lines between the ends of a segment may be lost, so what the last marker
/// covers is at the end of the result.
#[test]
fn any_edit_is_merged_or_refused() {
    let line = || prop::sample::select(vec!["a", "b", "", "}", "a ", "c", MARKER, MARKER]);
    let edit = prop::collection::vec(line(), 1..12);
    let old = prop::collection::vec(prop::sample::select(vec!["a", "b", "", "}", "a ", "d"]), 0..12);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(CASES) });
    let check = |(old, edit): (Vec<&str>, Vec<&str>)| {
        let (old, edit) = (old.join("\r\n"), edit.join("\n"));
        if let Ok(text) = merge(&old, &edit) {
            prop_assert_eq!(text.ends_with('\n'), old.ends_with('\n') || old.is_empty(), "{}", text);
            let last = edit.lines().next_back().unwrap_or_default();
            let kept = old.rsplit('\n').next().unwrap_or_default();
            prop_assert!(last != MARKER || text.ends_with(kept), "{} -> {}", edit, text);
        }
        Ok(())
    };
    runner.run(&(old, edit), check).unwrap();
}

/// A file of functions, each with unique lines and the closing lines that all share.
fn functions(names: &[u32]) -> Vec<String> {
    let of_one = |name: &u32| {
        [
            format!("fn step_{name}(input: &Input) -> Output {{"),
            format!("    let value = input.field_{name};"),
            "    if value.is_none() {".to_owned(),
            format!("        return Output::missing({name});"),
            "    }".to_owned(),
            format!("    combine(value, {name})"),
            "}".to_owned(),
            String::new(),
        ]
    };
    names.iter().flat_map(of_one).collect()
}

/// Changes one line of a function, or adds one after it.
fn with_change(lines: &[String], at: usize, is_added: bool) -> Vec<String> {
    let mut new = lines.to_vec();
    let text = format!("    changed_{at}();");
    if is_added {
        new.insert(at + 1, text);
    } else {
        new[at] = text;
    }
    new
}

#[test]
fn changes_between_distinct_lines_succeed() {
    let lines: Vec<String> = (0..40).map(|number| format!("let value_{number} = {number};")).collect();
    let tally = Tally::default();
    let writer = Writer { algorithm: Algorithm::Myers, keeps_first: false };
    for at in 0..lines.len() {
        for is_added in [false, true] {
            let new = with_change(&lines, at, is_added);
            let [old, new] = [&lines, &new].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
            check(&tally, &old, &new, writer).unwrap();
            let removed: Vec<_> = [&old[..at], &old[at + 1..]].concat();
            check(&tally, &old, &removed, writer).unwrap();
        }
    }
    assert_eq!(tally.refused.get(), 0, "{tally:?}");
}

/// Agents write the whole function that changed, with markers around it.
#[test]
fn a_function_rewritten_as_a_whole_succeeds_unless_its_end_changed() {
    let old = functions(&(0..12).collect::<Vec<_>>());
    let original = old.join("\n") + "\n";
    for function in 0..12 {
        for line in 1..5 {
            let new = with_change(&old, function * 8 + line, true);
            let written = new[function * 8..function * 8 + 8].join("\n");
            let edit = format!("{MARKER}\n{written}\n\n{MARKER}\n");
            assert_eq!(merge(&original, &edit), Ok(new.join("\n") + "\n"), "{edit}");
        }
    }
}
