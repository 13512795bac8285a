//! Processes are started by `crates/fence` alone, so that none starts without a fence by accident.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::Expr;
use syn::visit::{self, Visit};

use crate::violation::Violation;
use crate::workspace::Workspace;

/// `testkit` and `bench` start the product; they are not part of it.
const ALLOWED: [&str; 3] = ["crates/fence/", "crates/testkit/", "bench/"];

/// Functions that start a process, by their last names.
const STARTERS: [&str; 5] = ["posix_spawn", "posix_spawnp", "fork", "vfork", "clone3"];

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in workspace.production() {
        if ALLOWED.iter().any(|allowed| source.path.starts_with(allowed)) {
            continue;
        }
        let mut finder = Finder::default();
        finder.visit_file(&source.production);
        violations.extend(finder.found.into_iter().map(|(line, what)| Violation {
            rule: "spawning",
            file: source.path.clone(),
            line,
            message: format!("`{what}` outside of crates/fence"),
            hint: "start processes through crates/fence".to_owned(),
        }));
    }
    violations
}

#[derive(Default)]
struct Finder {
    found: Vec<(usize, String)>,
}

impl Finder {
    /// Takes the words of one path, with the line of the last one.
    fn look_at(&mut self, words: &[String], line: usize, is_called: bool) {
        match words {
            [.., owner, last] if owner == "Command" && last == "new" => {
                self.found.push((line, "Command::new".to_owned()));
            }
            [.., last] if is_called && STARTERS.contains(&last.as_str()) => {
                self.found.push((line, last.clone()));
            }
            _ => {}
        }
    }

    /// Arguments of macros are not parsed: looks for paths in their tokens.
    fn look_at_tokens(&mut self, tokens: TokenStream) {
        let mut words: Vec<String> = Vec::new();
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    line = word.span().start().line;
                    words.push(word.to_string());
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => {}
                TokenTree::Group(group) => {
                    self.look_at(&words, line, group.delimiter() == Delimiter::Parenthesis);
                    words.clear();
                    self.look_at_tokens(group.stream());
                }
                _ => words.clear(),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let segments = &function.path.segments;
            let words: Vec<String> = segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = segments.last().map_or(0, |segment| segment.ident.span().start().line);
            self.look_at(&words, line, true);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.look_at_tokens(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    #[test]
    fn processes_are_started_in_the_fence_only() {
        let text = "//! Starts things.\nfn f() {\n  std::process::Command::new(\"x\");\n  let fork = 1; drop(fork);\n  \
                    rustix::fork();\n  vec![Command::new(\"y\")];\n}\n#[cfg(test)]\nmod tests { fn g() { Command::new(\"z\"); } }\n";
        let workspace = workspace(&[
            ("crates/a/src/lib.rs", text),
            ("crates/fence/src/lib.rs", text),
            ("crates/testkit/src/lib.rs", text),
            ("bench/src/main.rs", text),
            ("crates/a/tests/it/main.rs", text),
        ]);
        let file = "crates/a/src/lib.rs";
        assert_eq!(
            lines(&check(&workspace)),
            [
                format!("{file}:3 `Command::new` outside of crates/fence"),
                format!("{file}:5 `fork` outside of crates/fence"),
                format!("{file}:6 `Command::new` outside of crates/fence"),
            ]
        );
    }
}
