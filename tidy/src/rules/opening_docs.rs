//! Every file opens with `//!`: what it is.

use crate::violation::Violation;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let silent = workspace.sources.iter().filter(|source| !source.text.starts_with("//!"));
    silent
        .map(|source| Violation {
            rule: "opening",
            file: source.path.clone(),
            line: 1,
            message: "the file does not open with `//!`".to_owned(),
            hint: "say in one to five lines what the file is".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    #[test]
    fn a_file_must_say_what_it_is() {
        let workspace = workspace(&[
            ("crates/a/src/lib.rs", "//! The library.\nmod part;\n"),
            ("crates/a/src/part.rs", "/// A constant.\nconst A: u8 = 1;\n"),
        ]);
        assert_eq!(lines(&check(&workspace)), ["crates/a/src/part.rs:1 the file does not open with `//!`"]);
    }
}
