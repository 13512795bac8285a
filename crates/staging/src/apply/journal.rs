//! What an apply is going to do, written before it does anything: enough to finish it, to take it back, and to undo it
//! later.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::changes::EntryKind;
use crate::held_tree::Seen;
use crate::path_text;

pub(super) const VERSION: u32 = 1;
/// The beginning of the names of the manifests before an apply.
pub(super) const BEFORE: &str = "before-";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(super) version: u32,
    pub(super) direction: Direction,
    pub(super) slots: SlotsPlace,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    Apply,
    Undo,
}

impl Direction {
    pub(super) fn reverse(self) -> Self {
        match self {
            Self::Apply => Self::Undo,
            Self::Undo => Self::Apply,
        }
    }
}

/// The directory with the slots: one for each file that is put into the base or taken out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotsPlace {
    /// A name in the copy's directory, if that lies on the file system of the base.
    InState(String),
    /// A name at the top of the base.
    InBase(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    #[serde(with = "path_text")]
    pub(super) path: PathBuf,
    pub(super) act: Act,
    /// The name of the slot.
    pub(super) slot: u64,
    /// The base had changed since the start. So it is not as at the start afterwards, and what was merged is not
    /// overwritten by the next apply.
    pub(super) had_changed: bool,
    /// The state of the copy that is taken over, as its manifest writes it.
    pub(super) copy_state: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    /// Exchanges the file in the slot with that of the base, or puts it where nothing is.
    Put {
        old: Option<Identity>,
        new: Identity,
    },
    /// Moves the file of the base into the slot.
    Remove {
        old: Identity,
    },
    MakeDirectory {
        mode: u32,
    },
    /// Not required: if it has something in it, it stays.
    RemoveDirectory {
        mode: u32,
        is_required: bool,
    },
    ChangeMode {
        from: u32,
        to: u32,
    },
}

/// What tells a file again, also under another name.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) is_link: bool,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) mode: u32,
    pub(super) modified: (i64, u64),
    /// Renaming changes it, so it tells only a file that was not touched yet.
    pub(super) changed: (i64, u64),
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        (self.is_link, self.inode, self.bytes, self.mode, self.modified)
            == (other.is_link, other.inode, other.bytes, other.mode, other.modified)
    }
}

impl Eq for Identity {}

impl Identity {
    /// The identity of a file or link; `None` for others.
    pub(super) fn of(seen: &Seen) -> Option<Self> {
        let is_link = match seen.kind {
            EntryKind::File => false,
            EntryKind::Link => true,
            _ => return None,
        };
        let Seen { bytes, mode, inode, modified, changed, .. } = *seen;
        Some(Self { is_link, inode, bytes, mode, modified, changed })
    }
}

impl SlotsPlace {
    fn name(&self) -> &str {
        match self {
            Self::InState(name) | Self::InBase(name) => name,
        }
    }

    /// What tells one transaction of a copy from another.
    pub(super) fn transaction(&self) -> &str {
        self.name().rsplit('-').next().unwrap_or_default()
    }
}

impl Step {
    pub(super) fn slot_name(&self) -> String {
        self.slot.to_string()
    }
}

/// The files of transactions in a copy's directory.
pub(crate) struct Files<'a> {
    pub(crate) copy: &'a Path,
}

impl Files<'_> {
    /// The apply or undo that is under way.
    pub(super) fn journal(&self) -> PathBuf {
        self.copy.join("journal.json")
    }

    /// The last apply, which can be undone.
    pub(super) fn last(&self) -> PathBuf {
        self.copy.join("last-apply.json")
    }

    pub(crate) fn has_last(&self) -> bool {
        self.last().exists()
    }

    /// Whether something was interrupted.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.journal().exists() || self.intent().exists()
    }

    /// Names the slots before they are made.
    pub(super) fn intent(&self) -> PathBuf {
        self.copy.join("intent.json")
    }

    /// Where originals stay that could not be restored.
    pub(super) fn kept(&self) -> PathBuf {
        self.copy.join("kept")
    }

    pub(crate) fn base_manifest(&self) -> PathBuf {
        self.copy.join("base.manifest")
    }

    pub(crate) fn copy_manifest(&self) -> PathBuf {
        self.copy.join("copy.manifest")
    }

    /// The manifests before an apply. Each apply has its own, because one that fails leaves the last one undoable.
    pub(super) fn base_manifest_before(&self, slots: &SlotsPlace) -> PathBuf {
        self.copy.join(format!("{BEFORE}{}.base", slots.transaction()))
    }

    pub(super) fn copy_manifest_before(&self, slots: &SlotsPlace) -> PathBuf {
        self.copy.join(format!("{BEFORE}{}.copy", slots.transaction()))
    }

    /// What the copy had when it was merged: the ancestor of the next merge.
    pub(crate) fn ancestor(&self, path_hash: u64, state: u64) -> PathBuf {
        self.copy.join("ancestors").join(format!("{path_hash:016x}-{state:016x}"))
    }
}
