//! Which files of a base look like secrets. They stay out of a copy unless git tracks them, `.worktreeinclude` names them,
//! or the caller does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::StagingError;
use crate::held_tree::HeldTree;

const INCLUDE_FILE: &str = ".worktreeinclude";
const MAX_INCLUDE_BYTES: u64 = 256 * 1024;

/// Names in lower case.
const NAMES: &[&str] = &[
    ".env",
    ".envrc.local",
    ".netrc",
    "_netrc",
    ".npmrc.local",
    ".pgpass",
    ".pypirc",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".vault-token",
    ".terraformrc",
    "credentials",
    "credentials.json",
    "service-account.json",
    "service_account.json",
    "terraform.tfstate",
    "terraform.tfstate.backup",
    "kubeconfig",
];
const BEGINNINGS: &[&str] =
    &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "secrets.", "secret.", "client_secret", "credentials."];
const ENDINGS: &[&str] = &[
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".keystore",
    ".jks",
    ".ppk",
    ".kdbx",
    ".tfvars",
    ".p8",
    ".asc.key",
    ".ovpn",
];
/// The endings of files that show what a secret file looks like, or of code.
const HARMLESS: &[&str] = &[
    "example", "sample", "template", "dist", "tmpl", "tpl", "md", "rs", "py", "js", "ts", "tsx", "go",
    "java", "c", "h", "rb", "pub",
];

/// Whether a name is usual for secrets.
pub(crate) fn looks_like_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    if name.rsplit('.').next().is_some_and(|ending| HARMLESS.contains(&ending)) {
        return false;
    }
    let is_environment =
        name.starts_with(".env.") || name.strip_suffix(".env").is_some_and(|beginning| !beginning.is_empty());
    is_environment
        || NAMES.contains(&name.as_str())
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// What comes along although it looks like a secret.
#[derive(Debug)]
pub(crate) struct Included {
    patterns: Gitignore,
    listed: Vec<PathBuf>,
}

impl Included {
    pub(crate) fn read(base: &HeldTree, listed: Vec<PathBuf>) -> Result<Self, StagingError> {
        let mut builder = GitignoreBuilder::new("");
        let text = base.read(Path::new(INCLUDE_FILE), MAX_INCLUDE_BYTES).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            let pattern = |error: ignore::Error| StagingError::Pattern {
                pattern: line.to_owned(),
                place: INCLUDE_FILE,
                reason: error.to_string(),
            };
            builder.add_line(None, line).map_err(pattern)?;
        }
        let patterns = builder.build().unwrap_or_else(|_| Gitignore::empty());
        Ok(Self { patterns, listed })
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.listed.iter().any(|listed| path.starts_with(listed))
            || self.patterns.matched_path_or_any_parents(path, false).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_by_their_names() {
        for name in [
            ".env",
            ".env.local",
            ".ENV.production",
            "prod.env",
            "server.pem",
            "id_rsa",
            "id_ed25519",
            "a.p12",
            "secrets.yaml",
            "credentials.json",
            ".netrc",
            "x.keystore",
        ] {
            assert!(looks_like_secret(OsStr::new(name)), "{name}");
        }
        for name in [
            ".env.example",
            ".env.sample",
            ".env.template",
            ".env.dist",
            "id_rsa.pub",
            "main.rs",
            "keys.py",
            "environment",
            "secrets.rs",
            "credentials.py",
            "monkey",
            "package.json",
            ".envrc",
        ] {
            assert!(!looks_like_secret(OsStr::new(name)), "{name}");
        }
    }
}
