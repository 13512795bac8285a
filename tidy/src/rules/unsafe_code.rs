//! `unsafe` is for `crates/fence` alone, in tests too.

use proc_macro2::{TokenStream, TokenTree};

use crate::violation::Violation;
use crate::workspace::Workspace;

/// The attacker of the tests tries what a safe library does not offer.
const ALLOWED: [&str; 2] = ["crates/fence/", "crates/testkit/src/bin/ringfence-attacker/"];

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &workspace.sources {
        if ALLOWED.iter().any(|allowed| source.path.starts_with(allowed)) {
            continue;
        }
        let Ok(tokens) = source.text.parse::<TokenStream>() else { continue };
        let mut lines = Vec::new();
        find(tokens, &mut lines);
        violations.extend(lines.into_iter().map(|line| Violation {
            rule: "unsafe",
            file: source.path.clone(),
            line,
            message: "`unsafe` outside of crates/fence".to_owned(),
            hint: "use rustix, or put a safe function into crates/fence".to_owned(),
        }));
    }
    violations
}

fn find(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => lines.push(word.span().start().line),
            TokenTree::Group(group) => find(group.stream(), lines),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    #[test]
    fn only_the_fence_may_be_unsafe() {
        let text = "//! unsafe in a comment\n#![deny(unsafe_code)]\nfn f() {\n  m!(unsafe { x })\n}\n";
        let workspace = workspace(&[("crates/a/src/lib.rs", text), ("crates/fence/src/lib.rs", text)]);
        assert_eq!(lines(&check(&workspace)), ["crates/a/src/lib.rs:4 `unsafe` outside of crates/fence"]);
    }
}
