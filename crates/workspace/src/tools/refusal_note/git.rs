//! The note on a git directory that the fence leaves outside.

use std::path::{Path, PathBuf};

use fence::lexical;

use super::{FenceFacts, MAX_LINES};

const NO_REPOSITORY: &str = "not a git repository";
/// What git prints of a remote that it cannot find.
const NO_REMOTE: &str = "does not appear to be a git repository";

pub(super) fn note_on_git(output: &str, facts: &FenceFacts) -> Option<String> {
    output.lines().rev().take(MAX_LINES).find_map(|line| {
        let directory = match line.split_once(NO_REPOSITORY) {
            Some((_, rest)) => facts.left_out(rest)?,
            None if line.contains(NO_REMOTE) => facts.remote(line)?,
            None => return None,
        };
        let shown = directory.display();
        Some(format!(
            "[ringfence: the git directory {shown} lies outside the fence; if it exists, the operator can let it in with \
             --git-directory {shown}]"
        ))
    })
}

impl FenceFacts {
    /// The git directory that git looked for and the fence leaves outside: the one that git names, which the variable
    /// `GIT_DIR` may have chosen, or the one that the workspace belongs to.
    fn left_out(&self, rest: &str) -> Option<PathBuf> {
        let named = rest.strip_prefix(": ").map(|named| Path::new(unquoted(named)));
        match named.filter(|named| named.is_absolute()) {
            Some(named) => {
                let named = common_directory(&lexical(named));
                let is_led_there =
                    self.git_link.as_deref().is_some_and(|link| common_directory(link) == named);
                (is_led_there || self.refuses(&named)).then_some(named)
            }
            None => self.git_left_out.clone().or_else(|| self.git_link.as_deref().map(common_directory)),
        }
    }

    /// The remote that a line names by its path, if the fence keeps it outside.
    fn remote(&self, line: &str) -> Option<PathBuf> {
        let named = Path::new(line.split('\'').nth(1)?);
        let path = match named.is_absolute() {
            true => lexical(named),
            // git goes to the top of the tree before it looks for a remote.
            false if named.starts_with("..") => lexical(&self.roots.first()?.join(named)),
            false => return None,
        };
        self.refuses(&path).then_some(path)
    }

    /// Whether the fence does not show a path, or does not let it be read.
    fn refuses(&self, path: &Path) -> bool {
        let is_own = self.roots.iter().chain(&self.private).any(|own| path.starts_with(own));
        let is_unreadable =
            || path.read_dir().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
        !is_own && (self.hides(path) || is_unreadable())
    }
}

/// The directory that the file `.git` of a workspace names.
pub(super) fn git_link(workspace: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(workspace.join(".git")).ok()?;
    let named = workspace.join(text.strip_prefix("gitdir:")?.trim());
    Some(lexical(&named))
}

/// The git directory that a linked worktree's directory is part of.
fn common_directory(own: &Path) -> PathBuf {
    let worktrees = own.parent().filter(|parent| parent.ends_with("worktrees"));
    worktrees.and_then(Path::parent).unwrap_or(own).to_owned()
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(output: &str, facts: &FenceFacts) -> String {
        note_on_git(output, facts).unwrap_or_default()
    }

    #[test]
    fn the_git_directory_that_a_workspace_belongs_to_is_named() {
        let nothing = "fatal: not a git repository (or any of the parent directories): .git";
        let linked =
            FenceFacts { git_link: Some("/srv/main/.git/worktrees/x".into()), ..FenceFacts::for_tests() };
        for output in [nothing, "fatal: not a git repository: /srv/main/.git/worktrees/x"] {
            assert!(said(output, &linked).contains("--git-directory /srv/main/.git]"), "{output}");
        }
        let folder = FenceFacts { git_left_out: Some("/srv/main/.git".into()), ..FenceFacts::for_tests() };
        assert!(said(nothing, &folder).contains("--git-directory /srv/main/.git]"));
        assert_eq!(said(nothing, &FenceFacts::for_tests()), "", "it is no repository anywhere");
    }

    #[test]
    fn remotes_that_are_missing_for_another_reason_are_not_blamed_on_the_fence() {
        let facts = FenceFacts { has_own_root: true, ..FenceFacts::for_tests() };
        for remote in ["origin", "/home/ada/project/missing.git", "./missing.git", "/tmp/missing.git"] {
            let output = format!("fatal: '{remote}' does not appear to be a git repository");
            assert_eq!(said(&output, &facts), "", "{output}");
        }
    }
}
