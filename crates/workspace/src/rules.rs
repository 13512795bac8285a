//! The operator's rules: which tools, paths and commands are allowed.
//!
//! Path rules apply to the file that was opened, not to the spelling of its path. Command rules are advice,
//! because a shell has many ways to say one thing; the boundary is the fence.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use thiserror::Error;

use crate::tools::listed_name;

/// The rules as the operator writes them.
#[derive(Clone, Debug, Default)]
pub struct RuleOptions {
    pub allow_tools: Vec<String>,
    pub block_tools: Vec<String>,
    pub allow_paths: Vec<String>,
    pub block_paths: Vec<String>,
    pub allow_commands: Vec<String>,
    pub block_commands: Vec<String>,
}

#[derive(Debug, Error)]
pub enum RuleError {
    #[error("`{pattern}` is not a path pattern: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("there is no tool `{name}`; there are {known}")]
    UnknownTool { name: String, known: String },
}

/// Rules about tools and commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    options: RuleOptions,
}

impl Rules {
    pub(crate) fn new(options: RuleOptions, known_tools: &[&str]) -> Result<Self, RuleError> {
        let named = options.allow_tools.iter().chain(&options.block_tools);
        match named.into_iter().find(|name| !known_tools.contains(&name.as_str())) {
            Some(name) => Err(RuleError::UnknownTool { name: name.clone(), known: known_tools.join(", ") }),
            None => Ok(Self { options }),
        }
    }

    pub(crate) fn allows_tool(&self, name: &str) -> bool {
        let RuleOptions { allow_tools, block_tools, .. } = &self.options;
        let is_named = |list: &[String]| list.iter().any(|tool| listed_name(tool) == name);
        (allow_tools.is_empty() || is_named(allow_tools)) && !is_named(block_tools)
    }

    /// Why the rules refuse a script; `None` if they allow it.
    pub(crate) fn against_script(&self, script: &str) -> Option<String> {
        let RuleOptions { allow_commands, block_commands, .. } = &self.options;
        for command in commands_of(script) {
            if let Some(prefix) = block_commands.iter().find(|prefix| begins_with(command, prefix)) {
                return Some(format!("commands that begin with `{prefix}` are blocked by the operator"));
            }
            if !allow_commands.is_empty() && !allow_commands.iter().any(|prefix| begins_with(command, prefix))
            {
                return Some(format!(
                    "`{command}` does not begin with one of the commands that the operator allows: {}",
                    allow_commands.join(", ")
                ));
            }
        }
        None
    }
}

/// Splits a script into commands, roughly: at every character that can separate commands.
fn commands_of(script: &str) -> impl Iterator<Item = &str> {
    script
        .split([';', '&', '|', '\n', '(', ')', '`', '{', '}'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Compares word by word, so that `git push` does not match `git pushy`.
fn begins_with(command: &str, prefix: &str) -> bool {
    let mut words = command.split_ascii_whitespace();
    prefix.split_ascii_whitespace().all(|wanted| words.next() == Some(wanted))
}

/// Rules about paths.
#[derive(Clone, Debug)]
pub(crate) struct PathRules {
    /// `None` allows everything.
    allowed: Option<GlobSet>,
    blocked: GlobSet,
}

impl PathRules {
    /// `None` if the options have no path rules.
    pub(crate) fn new(options: &RuleOptions) -> Result<Option<Self>, RuleError> {
        if options.allow_paths.is_empty() && options.block_paths.is_empty() {
            return Ok(None);
        }
        let allowed = (!options.allow_paths.is_empty()).then(|| globs(&options.allow_paths)).transpose()?;
        Ok(Some(Self { allowed, blocked: globs(&options.block_paths)? }))
    }

    /// Why the rules refuse a file below a root; `None` if they allow it.
    pub(crate) fn against(&self, below: &Path) -> Option<String> {
        if self.blocked.is_match(below) {
            return Some("the operator blocks this path".to_owned());
        }
        match &self.allowed {
            Some(allowed) if !allowed.is_match(below) => {
                Some("the operator allows other paths only".to_owned())
            }
            _ => None,
        }
    }

    /// Checks a file or a directory.
    pub(crate) fn against_kind(&self, below: &Path, is_directory: bool) -> Option<String> {
        if is_directory { self.against_directory(below) } else { self.against(below) }
    }

    /// Why the rules refuse to list a directory. One that is not allowed itself may contain allowed files.
    pub(crate) fn against_directory(&self, below: &Path) -> Option<String> {
        self.blocked.is_match(below).then(|| "the operator blocks this path".to_owned())
    }
}

/// A pattern without a slash matches names at any depth. Everything below a match matches too.
fn globs(patterns: &[String]) -> Result<GlobSet, RuleError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let failed = |reason: globset::Error| RuleError::Pattern {
            pattern: pattern.clone(),
            reason: reason.to_string(),
        };
        let trimmed = pattern.trim_start_matches('/').trim_end_matches('/');
        let anchored = if pattern.trim_end_matches('/').contains('/') {
            trimmed.to_owned()
        } else {
            format!("**/{trimmed}")
        };
        for glob in [anchored.clone(), format!("{anchored}/**")] {
            set.add(GlobBuilder::new(&glob).literal_separator(true).build().map_err(failed)?);
        }
    }
    set.build()
        .map_err(|reason| RuleError::Pattern { pattern: patterns.join(" "), reason: reason.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(options: RuleOptions) -> Rules {
        Rules::new(options, &["read_file", "run_terminal_cmd"]).unwrap()
    }

    #[test]
    fn commands_are_compared_word_by_word() {
        let blocks = rules(RuleOptions { block_commands: vec!["git push".into()], ..RuleOptions::default() });
        for script in ["git push", "git  push origin", "make && git push", "(git push)", "x\ngit push\n"] {
            assert!(blocks.against_script(script).is_some(), "{script}");
        }
        assert!(blocks.against_script("git pushy; git status; echo git push").is_none());
        let allows = rules(RuleOptions {
            allow_commands: vec!["cargo".into(), "git diff".into()],
            ..RuleOptions::default()
        });
        assert!(allows.against_script("cargo test && git diff HEAD").is_none());
        assert!(allows.against_script("cargo test; rm -rf .").is_some());
    }

    #[test]
    fn tools_are_allowed_or_blocked_by_name() {
        let blocks =
            rules(RuleOptions { block_tools: vec!["run_terminal_cmd".into()], ..RuleOptions::default() });
        assert!(blocks.allows_tool("read_file") && !blocks.allows_tool("run_terminal_cmd"));
        let unknown = RuleOptions { allow_tools: vec!["reed_file".into()], ..RuleOptions::default() };
        assert!(Rules::new(unknown, &["read_file"]).unwrap_err().to_string().contains("reed_file"));
    }

    #[test]
    fn path_patterns_cover_what_is_below() {
        let options = RuleOptions {
            block_paths: vec![".env".into(), "secrets/".into(), "a/*.key".into()],
            ..RuleOptions::default()
        };
        let rules = PathRules::new(&options).unwrap().unwrap();
        for blocked in [".env", "deep/.env", "x/secrets/y", "a/b.key"] {
            assert!(rules.against(Path::new(blocked)).is_some(), "{blocked}");
        }
        for open in [".envrc", "b/a.key", "a/b/c.key", "secrets.md"] {
            assert!(rules.against(Path::new(open)).is_none(), "{open}");
        }
        let options =
            RuleOptions { allow_paths: vec!["src".into(), "*.md".into()], ..RuleOptions::default() };
        let rules = PathRules::new(&options).unwrap().unwrap();
        assert!(
            rules.against(Path::new("src/a/b.rs")).is_none()
                && rules.against(Path::new("docs/x.md")).is_none()
        );
        assert!(rules.against(Path::new("Cargo.toml")).is_some());
        assert!(
            PathRules::new(&RuleOptions { block_paths: vec!["[".into()], ..RuleOptions::default() }).is_err()
        );
    }
}
