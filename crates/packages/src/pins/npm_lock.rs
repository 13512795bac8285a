//! Reads `package-lock.json`, version 3.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Pin, PinsError, shortened, word};

/// How the commit of a git repository is written among the hashes.
const COMMIT: &str = "commit-";
/// What npm calls this system and this processor.
const SYSTEM: (&str, &str) = (
    if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS },
    if cfg!(target_arch = "x86_64") {
        "x64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        std::env::consts::ARCH
    },
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockFile {
    lockfile_version: u64,
    packages: BTreeMap<String, Entry>,
}

/// A package at a place in the tree: `node_modules/a/node_modules/b`. The root has an empty place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// Differs from the place for an alias.
    name: Option<String>,
    version: Option<String>,
    resolved: Option<String>,
    integrity: Option<String>,
    #[serde(default)]
    link: bool,
    #[serde(default)]
    in_bundle: bool,
    #[serde(default)]
    has_install_script: bool,
    #[serde(default)]
    os: Value,
    #[serde(default)]
    cpu: Value,
    #[serde(default)]
    dependencies: Value,
}

fn lock_file(text: &str) -> Result<LockFile, PinsError> {
    let file: LockFile =
        serde_json::from_str(text).map_err(|error| PinsError::Malformed(shortened(&error.to_string())))?;
    if file.lockfile_version != 3 {
        return Err(PinsError::Malformed(format!("its version is {}, not 3", file.lockfile_version)));
    }
    Ok(file)
}

pub(super) fn packages(text: &str) -> Result<Vec<Pin>, PinsError> {
    let file = lock_file(text)?;
    file.packages
        .iter()
        .filter(|(place, _)| !place.is_empty())
        .map(|(place, entry)| pin(place, entry))
        .collect()
}

/// The `package.json` that belongs to a lock: `npm ci` compares the two.
pub(super) fn description(text: &str) -> Result<String, PinsError> {
    let root = lock_file(text)?.packages.remove("").map(|root| root.dependencies);
    Ok(json!({"private": true, "dependencies": root.unwrap_or_default()}).to_string())
}

fn pin(place: &str, entry: &Entry) -> Result<Pin, PinsError> {
    let (_, last) = place.rsplit_once("node_modules/").unwrap_or_default();
    let leads_outside = place.split('/').any(|part| part == "..");
    if !place.starts_with("node_modules/") || leads_outside || entry.link {
        return Err(PinsError::NotFromRegistry(shortened(place)));
    }
    let name = word(entry.name.as_deref().unwrap_or(last))?;
    let hashes = hashes(&name, entry)?;
    let version = match &entry.version {
        Some(version) => word(version)?,
        None => return Err(PinsError::Malformed(format!("it has no version of `{name}`"))),
    };
    // Packages in git repositories are prepared for use by scripts of their own.
    let is_git = hashes.iter().any(|hash| hash.starts_with(COMMIT));
    let runs_here = fits(&entry.os, SYSTEM.0) && fits(&entry.cpu, SYSTEM.1);
    Ok(Pin {
        is_at_top: place == format!("node_modules/{name}"),
        name,
        version,
        hashes,
        has_install_script: (entry.has_install_script || is_git) && runs_here,
    })
}

/// The hashes of the archive; the commit, if the package is a git repository. A bundled package has none of its own.
fn hashes(name: &str, entry: &Entry) -> Result<BTreeSet<String>, PinsError> {
    let resolved = entry.resolved.as_deref().unwrap_or("https:");
    if let Some(commit) =
        resolved.strip_prefix("git+").and_then(|url| url.rsplit_once('#')).map(|(_, commit)| commit)
        && matches!(commit.len(), 40 | 64)
        && commit.chars().all(|c| c.is_ascii_hexdigit())
    {
        return Ok(BTreeSet::from([format!("{COMMIT}{commit}")]));
    }
    if !resolved.starts_with("https:") && !resolved.starts_with("http:") {
        return Err(PinsError::NotFromRegistry(name.to_owned()));
    }
    let hashes: BTreeSet<String> =
        entry.integrity.iter().flat_map(|all| all.split_whitespace()).map(str::to_owned).collect();
    match hashes.iter().find(|hash| !is_integrity(hash)) {
        Some(_) => Err(PinsError::Malformed(format!("the hash of `{name}` is none"))),
        None if hashes.is_empty() && !entry.in_bundle => Err(PinsError::NoHash(name.to_owned())),
        None => Ok(hashes),
    }
}

/// Accepts `ALGORITHM-BASE64` with as many characters as the algorithm has.
fn is_integrity(text: &str) -> bool {
    let Some((algorithm, digest)) = text.split_once('-') else { return false };
    let length = match algorithm {
        "sha512" => 88,
        "sha384" => 64,
        "sha256" => 44,
        "sha1" => 28,
        _ => return false,
    };
    digest.len() == length && digest.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c))
}

/// Whether a list such as `["linux", "darwin"]` or `["!win32"]` allows this system.
fn fits(list: &Value, system: &str) -> bool {
    let words: Vec<&str> = match list {
        Value::String(word) => vec![word],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is_refused = words.iter().any(|word| word.strip_prefix('!') == Some(system));
    let mut named = words.iter().filter(|word| !word.starts_with('!')).peekable();
    !is_refused && (named.peek().is_none() || named.any(|word| *word == system))
}
