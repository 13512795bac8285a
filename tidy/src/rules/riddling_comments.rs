//! Comments name their subjects: a part of the program, a caller, a client.

use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::comments::comment_lines;
use crate::violation::Violation;
use crate::workspace::{Workspace, is_for_tests};

/// The most lines of comments that may have such a subject.
pub(super) const LIMIT: usize = 0;

const SUBJECTS: [&str; 4] = ["whoever", "nobody", "somebody", "everybody"];

/// A comment of the product with one of [`SUBJECTS`].
#[derive(Debug)]
pub(super) struct Riddle {
    file: String,
    line: usize,
    subject: &'static str,
}

pub(super) fn find(workspace: &Workspace) -> Vec<Riddle> {
    let mut riddles = Vec::new();
    for source in workspace.production() {
        let mut tests = TestLines::default();
        tests.visit_file(&source.whole);
        for comment in comment_lines(&source.text) {
            let subject = SUBJECTS.into_iter().find(|subject| has_word(comment.text, subject));
            let Some(subject) = subject.filter(|_| !tests.lines.contains(&comment.line)) else { continue };
            riddles.push(Riddle { file: source.path.clone(), line: comment.line, subject });
        }
    }
    riddles
}

pub(super) fn check(riddles: &[Riddle]) -> Vec<Violation> {
    check_against(riddles, LIMIT)
}

fn check_against(riddles: &[Riddle], limit: usize) -> Vec<Violation> {
    if riddles.len() <= limit {
        return Vec::new();
    }
    let violation = |Riddle { file, line, subject }: &Riddle| Violation {
        rule: "riddles",
        file: file.clone(),
        line: *line,
        message: format!("a comment about \"{subject}\""),
        hint: "name the subject: a type, a caller, a client; verb first, then the reason".to_owned(),
    };
    riddles.iter().map(violation).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).any(|candidate| candidate == word)
}

/// The lines of modules and functions that only tests have.
#[derive(Default)]
struct TestLines {
    lines: BTreeSet<usize>,
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_for_tests(&module.attrs) {
            self.lines.extend(module.span().start().line..=module.span().end().line);
        }
        visit::visit_item_mod(self, module);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if is_for_tests(&function.attrs) {
            self.lines.extend(function.span().start().line..=function.span().end().line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    #[test]
    fn comments_of_the_product_name_their_subjects() {
        let text = "//! Whoever reads this.\nconst A: &str = \"nobody\"; // everybody's\nfn nobody() {}\n\
                    #[cfg(test)]\nmod tests {\n// somebody\n}\n";
        let riddles = find(&workspace(&[("crates/a/src/lib.rs", text), ("crates/a/tests/it/main.rs", text)]));
        assert_eq!(
            lines(&check_against(&riddles, 1)),
            [
                "crates/a/src/lib.rs:1 a comment about \"whoever\"",
                "crates/a/src/lib.rs:2 a comment about \"everybody\""
            ]
        );
        assert_eq!(check_against(&riddles, 2), []);
    }
}
