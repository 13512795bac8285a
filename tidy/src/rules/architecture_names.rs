//! ARCHITECTURE.md names only what exists.
//!
//! Looked up are, in backticks and in blocks of code without a language:
//!
//! - `Type::method`, `Type::Variant`, `module::function`;
//! - `function()`, and every name with an underscore: a function, type, field, module, constant, or a word in a
//!   string of the sources;
//! - types: in backticks every name in camel case, in blocks those with two capitals (`EventBody`), since a block
//!   may begin a line with an ordinary word;
//! - files: `crates/gateway/src/status.rs`, or any end of it, with or without `src`: `gateway/status.rs`,
//!   `status.rs`; and paths that begin with a directory of the tree's root, such as `docs/http.md`.
//!
//! A single word in lower case without `()` is taken for English.

use super::definitions::Definitions;
use super::markdown::{CodeKind, code};
use crate::files::Files;
use crate::violation::Violation;
use crate::workspace::Workspace;

const PAGE: &str = "ARCHITECTURE.md";

/// Names that look like code of ours: crates and types of others, protocol words, products.
const NOT_OURS: [&str; 17] = [
    "std",
    "tokio",
    "libc",
    "rustix",
    "hyper",
    "axum",
    "Accept",
    "Authorization",
    "Bearer",
    "Host",
    "Origin",
    "WebSocket",
    "WebSockets",
    "GitHub",
    "Linux",
    "Landlock",
    "Cargo",
];

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let Some(page) = workspace.files.text(PAGE) else { return Vec::new() };
    let definitions = Definitions::of(workspace);
    let mut violations = Vec::new();
    for piece in code(page) {
        for word in words(piece.text) {
            let Some(what) = missing(word, piece.kind, &definitions, &workspace.files) else { continue };
            violations.push(Violation {
                rule: "names",
                file: PAGE.to_owned(),
                line: piece.line,
                message: format!("{what} `{word}` does not exist"),
                hint: "use its present name, or remove it; tidy/src/rules/architecture_names.rs lists names of others"
                    .to_owned(),
            });
        }
    }
    violations
}

/// Names and paths, with `()` if they have it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_:/.()-<>{}$*=\"".contains(c);
    let pieces = text.split(move |c| !is_part(c));
    pieces.map(|word| word.trim_matches(['.', ':', '"'])).filter(|word| !word.is_empty())
}

/// What kind of thing the word names, if that does not exist.
fn missing(word: &str, kind: CodeKind, definitions: &Definitions, files: &Files) -> Option<&'static str> {
    if word.contains('/') || has_source_suffix(word) {
        return (!path_exists(word, files)?).then_some("file");
    }
    let (name, is_called) = match word.strip_suffix("()") {
        Some(name) => (name, true),
        None => (word.split('(').next().unwrap_or(word), false),
    };
    let name = name.trim_start_matches('(').trim_end_matches(')');
    let parts: Vec<&str> = name.split("::").collect();
    if !parts.iter().all(|part| is_name(part)) || NOT_OURS.contains(&parts[0]) {
        return None;
    }
    let exists = match parts[..] {
        [.., owner, name] => definitions.has_in(owner, name),
        [name] if is_called => definitions.has_function(name),
        [name] if looks_like_code(name, kind) => definitions.has(name) || definitions.has_word(name),
        _ => true,
    };
    let what = match parts[..] {
        [name] if !is_called && name.starts_with(|c: char| c.is_ascii_uppercase()) => "type",
        [name] if !is_called && !definitions.has_function(name) => "name",
        _ => "function",
    };
    (!exists).then_some(what)
}

fn is_name(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_alphabetic())
        && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn looks_like_code(name: &str, kind: CodeKind) -> bool {
    let has_lower = name.chars().any(|c| c.is_ascii_lowercase());
    let capitals = name.chars().filter(char::is_ascii_uppercase).count();
    let is_camel = name.starts_with(|c: char| c.is_ascii_uppercase()) && has_lower;
    let least = if kind == CodeKind::Span { 1 } else { 2 };
    name.contains('_') || (is_camel && capitals >= least)
}

fn has_source_suffix(word: &str) -> bool {
    word.rsplit_once('.').is_some_and(|(_, suffix)| suffix == "rs")
}

/// `None` for what is no path into the tree: routes, media types, methods of MCP, system paths.
fn path_exists(word: &str, files: &Files) -> Option<bool> {
    let first = word.split('/').next().unwrap_or_default();
    let is_of_tree = files.is_directory(first) && !word.contains(['(', '<', '{', '*', '$']);
    if is_of_tree {
        let path = word.trim_end_matches('/');
        return Some(files.exists(path) || files.is_directory(path) || ends_a_source(path, files));
    }
    has_source_suffix(word).then(|| ends_a_source(word, files))
}

fn ends_a_source(word: &str, files: &Files) -> bool {
    let wanted = significant(word);
    files.names().any(|name| significant(name).ends_with(&wanted))
}

/// A path without the directories that readers leave out.
fn significant(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| *part != "src" && *part != "crates").collect()
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    const SOURCES: [(&str, &str); 3] = [
        (
            "crates/a/src/lib.rs",
            "//! A.\nmod part;\npub struct Thing { some_field: u8 }\nimpl Thing { fn act(&self) {} }\n\
             enum Kind { First }\nconst MOST_OF_IT: usize = 1;\nfn take() { say(\"scope_refused\", CLONE_PARENT); }",
        ),
        ("crates/a/src/part.rs", "//! Part.\nfn do_it() {}"),
        ("crates/a/tests/it/scopes.rs", "//! Tests.\n#[test]\nfn the_first_wins() {}"),
    ];

    fn check_page(page: &str) -> Vec<String> {
        let files = [&SOURCES[..], &[("ARCHITECTURE.md", page), ("docs/http.md", "")]].concat();
        lines(&check(&workspace(&files)))
    }

    #[test]
    fn what_exists_may_be_named() {
        let page = "`Thing` `Thing::act` `a::Thing` `Kind::First` `take()` `do_it` `part::do_it` `some_field`\n\
                    `MOST_OF_IT` `scope_refused` `CLONE_PARENT` `part.rs` `a/part.rs` `crates/a/src/part.rs`\n\
                    `scopes::the_first_wins` `docs/http.md` `crates/a` `GET /sessions/ID` `tools/call` `Host` `word`\n\
                    `--some-option` `Retry-After` `tokio::spawn` `text/event-stream` `*/list_changed` `/proc/PID/stat`\n\
                    ```\nThing::act → take() → do_it  Words of English; (Thing::act)\n```\n\
                    ```yaml\nnot_looked_at: NotLookedAt\n```\n";
        assert_eq!(check_page(page), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_reported_with_its_line() {
        let page = "`Gone` and `Thing::gone`\n`gone()` `gone_too` `a/gone.rs` `crates/gone/src/lib.rs`\n\
                    ```\nThing::vanish → gone_again → GoneType, part::take\n```\n";
        let expected = [
            "1 type `Gone`",
            "1 function `Thing::gone`",
            "2 function `gone()`",
            "2 name `gone_too`",
            "2 file `a/gone.rs`",
            "2 file `crates/gone/src/lib.rs`",
            "4 function `Thing::vanish`",
            "4 name `gone_again`",
            "4 type `GoneType`",
            "4 function `part::take`",
        ];
        let expected: Vec<String> =
            expected.iter().map(|what| format!("ARCHITECTURE.md:{what} does not exist")).collect();
        assert_eq!(check_page(page), expected);
    }
}
