//! The record of a scope's placeholders as text: one entry after the other, a later one of the same path in place of an
//! earlier one.
//!
//! An entry is a letter for the kind, the path, a null byte, what was made as `DEVICE.INODE` or nothing if that is not
//! known, and another null byte. An earlier release wrote files with one kind and path alone, which are read too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use super::PlaceholderKind;
use crate::session_directory::hexadecimal;

/// A placeholder that was made, or is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: PlaceholderKind,
    /// `None` until it is made.
    pub(super) identity: Option<Identity>,
}

impl Entry {
    pub(super) fn intended(kind: PlaceholderKind) -> Self {
        Self { kind, identity: None }
    }
}

/// Tells a placeholder from what took its name later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    #[allow(clippy::useless_conversion, clippy::cast_sign_loss, reason = "other systems have other types")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino.into() }
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (device, inode) = std::str::from_utf8(text).ok()?.split_once('.')?;
        Some(Self { device: device.parse().ok()?, inode: inode.parse().ok()? })
    }
}

/// The name of a scope's record.
pub(super) fn record_name(scope: &Path) -> String {
    hexadecimal(&Sha256::digest(scope.as_os_str().as_bytes())[..12])
}

pub(super) fn text(entries: &BTreeMap<PathBuf, Entry>) -> Vec<u8> {
    let mut text = Vec::new();
    for (path, entry) in entries {
        text.push(entry.kind.letter());
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
        if let Some(Identity { device, inode }) = entry.identity {
            text.extend_from_slice(format!("{device}.{inode}").as_bytes());
        }
        text.push(0);
    }
    text
}

pub(super) fn parse(text: &[u8]) -> BTreeMap<PathBuf, Entry> {
    let fields: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    let entry = |fields: &[&[u8]]| {
        let (letter, path) = fields.first()?.split_first()?;
        let kind = PlaceholderKind::ALL.into_iter().find(|kind| kind.letter() == *letter)?;
        let path = PathBuf::from(OsStr::from_bytes(path));
        let identity = fields.get(1).and_then(|text| Identity::parse(text));
        path.is_absolute().then_some((path, Entry { kind, identity }))
    };
    fields.chunks(2).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_last_entry_of_a_path_counts() {
        let path = PathBuf::from(OsStr::from_bytes(b"/scope/a\nb\xff"));
        let intended = Entry::intended(PlaceholderKind::EmptyFile);
        let made = Entry { identity: Some(Identity { device: 7, inode: 11 }), ..intended };
        let one = |entry| text(&BTreeMap::from([(path.clone(), entry)]));
        assert_eq!(parse(&one(made)), BTreeMap::from([(path.clone(), made)]));
        assert_eq!(parse(&[one(intended), one(made)].concat()), BTreeMap::from([(path.clone(), made)]));
        assert_eq!(parse(b"d/scope/.vscode").len(), 1, "as an earlier release wrote it");
        for nothing in [&b""[..], b"x/scope", b"drelative\0", b"d"] {
            assert!(parse(nothing).is_empty(), "{nothing:?}");
        }
    }
}
