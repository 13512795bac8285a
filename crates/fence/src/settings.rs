//! What an operator wants of every fence, before a scope and a program are known.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::confinement::ProtectionName;
use crate::paths::VettedDirectory;
use crate::policy::{Allowance, GitChoice, Limits, MetadataChoice, Network, TierChoice, UnixSockets};
use crate::staged::StagedScope;

/// What an operator wants of every fence.
#[derive(Clone, Debug)]
pub struct FenceSettings {
    /// Directories that may be written beside the scope.
    pub write: Vec<PathBuf>,
    /// Paths that may be read beside what the read mode allows.
    pub read: Vec<PathBuf>,
    pub read_mode: ReadChoice,
    /// Paths that must not be read, beside the default deny list.
    pub deny_read: Vec<PathBuf>,
    /// Taken off the default deny list.
    pub allow_sensitive_reads: Vec<PathBuf>,
    /// Size limit of the temporary files; `None` for no temporary files.
    pub temp_bytes: Option<u64>,
    pub network: Network,
    pub unix_sockets: UnixSockets,
    pub allowances: BTreeSet<Allowance>,
    pub limits: Limits,
    pub tier: TierChoice,
    pub allow_degraded: BTreeSet<ProtectionName>,
    pub require: BTreeSet<ProtectionName>,
    pub hardlinks: HardlinkChoice,
    /// Git directories outside the scope.
    pub git: GitChoice,
    /// Files of the scope that programs outside execute or obey.
    pub metadata: MetadataChoice,
    /// The scope can be read but not written.
    pub read_only: bool,
    /// Commands find what earlier ones of the same workspace and principal downloaded. The most bytes that all of that
    /// may take; `None` keeps nothing.
    pub kept_caches: Option<u64>,
    /// Every program on the search path can run, not only the command.
    pub all_programs: bool,
    /// The user that the command runs as instead of root, which then runs ringfence. The group has the same number.
    pub user: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadChoice {
    Open,
    Strict,
}

/// How to treat files of the scope that have another name outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardlinkChoice {
    /// Look for them while the command runs, and warn.
    Warn,
    Refuse,
    /// Make the directories that hold them read-only.
    Protect,
}

/// The directories that a fence is put around.
#[derive(Clone, Copy, Debug)]
pub enum ScopeChoice<'a> {
    Directories(&'a [PathBuf]),
    /// Directories that were vetted before, and must be the same ones still.
    Vetted(&'a [VettedDirectory]),
    /// A directory that ringfence made below its own for this command. Users cannot name one of those.
    Own(&'a Path),
    /// Directories that were vetted before, and what stands at their places.
    Staged {
        directories: &'a [VettedDirectory],
        staged: &'a StagedScope,
    },
    /// An empty directory of the session.
    Empty,
}

/// Where programs inside keep what they download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChoice<'a> {
    /// In a directory that the next command of the same scope and principal finds again. The owner is empty for the
    /// user's own commands.
    Kept { owner: &'a str },
    /// In a directory that is removed with the session.
    Private,
}
