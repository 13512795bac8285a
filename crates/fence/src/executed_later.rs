//! Files of a workspace that programs outside execute or obey, and that agents are asked to change every day. Fences leave
//! them writable; sessions say which ones changed.

use std::path::Path;

/// Names of files that stay writable though programs outside execute or obey them. A session says which ones changed.
const EXECUTED_LATER: &[&str] = &[
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".cursorrules",
    "package.json",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "build.rs",
    "setup.py",
    "conftest.py",
    "Dockerfile",
    ".pre-commit-config.yaml",
    ".gitattributes",
    ".gitmodules",
];

/// The directory whose files CI executes.
const WORKFLOWS: &str = ".github";

/// Whether a path of a scope, relative to its top, stays writable though it is executed later.
pub fn is_executed_later(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    EXECUTED_LATER.contains(&name) || path.starts_with(WORKFLOWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_change_every_day_is_named_and_not_kept() {
        for path in ["AGENTS.md", "packages/a/package.json", ".github/workflows/ci.yml"] {
            assert!(is_executed_later(Path::new(path)), "{path}");
        }
        assert!(!is_executed_later(Path::new("src/main.rs")));
    }
}
