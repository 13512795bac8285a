//! Reads requirements with hashes, as `uv pip compile --generate-hashes` writes them:
//!
//! ```text
//! anyio==4.16.0 \
//!     --hash=sha256:… \
//!     --hash=sha256:…
//! ```

use std::collections::BTreeSet;

use super::{Pin, PinsError, shortened, word};

pub(super) fn packages(text: &str) -> Result<Vec<Pin>, PinsError> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(pin).collect()
}

/// One name for all spellings: `Some_Server` is `some-server`.
pub(super) fn normalised(name: &str) -> String {
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

fn pin(line: &str) -> Result<Pin, PinsError> {
    let malformed = || PinsError::Malformed(format!("{:?} names no version and hashes", shortened(line)));
    let mut words = line.split(" --hash=");
    let requirement = words.next().unwrap_or_default();
    // Markers say on which systems it is installed.
    let (requirement, _) = requirement.split_once(';').unwrap_or((requirement, ""));
    let (name, version) = requirement.split_once("==").ok_or_else(malformed)?;
    let (name, _extras) = name.split_once('[').unwrap_or((name, ""));
    let name = word(name.trim())?;
    let hashes: BTreeSet<String> = words.map(|hash| hash.trim().to_owned()).collect();
    if hashes.is_empty() {
        return Err(PinsError::NoHash(name));
    }
    if hashes.iter().any(|hash| !is_hash(hash)) {
        return Err(malformed());
    }
    Ok(Pin {
        name: normalised(&name),
        version: word(version.trim())?,
        hashes,
        has_install_script: false,
        is_at_top: true,
    })
}

/// Accepts `ALGORITHM:HEXADECIMAL` with as many digits as the algorithm has.
fn is_hash(text: &str) -> bool {
    let Some((algorithm, digest)) = text.split_once(':') else { return false };
    let length = match algorithm {
        "sha512" => 128,
        "sha384" => 96,
        "sha256" => 64,
        _ => return false,
    };
    digest.len() == length && digest.chars().all(|c| c.is_ascii_hexdigit())
}
