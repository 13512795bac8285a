//! What a command may do. No default allows anything: the caller decides every field.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::confinement::ProtectionName;
use crate::passed_files::PassedFiles;
use crate::paths::{DeniedPath, VettedDirectory};
use crate::staged::StagedScope;

/// Everything that a fence has to enforce.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The workspace: read-write, unless `read_only`.
    pub scope: Vec<VettedDirectory>,
    /// The scope can be read and not written.
    pub read_only: bool,
    /// What the command finds instead of the scope, which then stays as it is.
    pub staged: Option<StagedScope>,
    /// Git directories outside the scope that it takes in.
    pub git: Vec<GitDirectory>,
    /// More that is read-write, such as the session's home and caches.
    pub read_write: Vec<VettedDirectory>,
    /// Read-write directories that the command finds at other paths too. Only a root of its own can show them there.
    pub mirrored: Vec<Mirror>,
    pub read: ReadMode,
    /// Never readable, even if other fields allow it.
    pub deny_read: Vec<DeniedPath>,
    /// Directories with files of other fences: hidden, except for read-write directories in them.
    pub hidden: Vec<PathBuf>,
    /// Inside the scope, and yet read-only.
    pub protected: Vec<PathBuf>,
    /// Files of the scope that programs outside execute or obey.
    pub metadata: MetadataChoice,
    pub temp: Temp,
    pub network: Network,
    pub unix_sockets: UnixSockets,
    /// Exceptions to what is refused by default.
    pub allowances: BTreeSet<Allowance>,
    pub limits: Limits,
    pub tier: TierChoice,
    /// Protections that may be missing.
    pub allow_degraded: BTreeSet<ProtectionName>,
    /// Protections that must not be missing though they are only preferred otherwise.
    pub require: BTreeSet<ProtectionName>,
    /// The user that the command runs as, if it is not the one that runs ringfence.
    pub user: Option<u32>,
    /// How many files of the scope have names outside it; `None` if they were not counted.
    pub shared_hardlinks: Option<HardlinkCount>,
}

/// A directory that the command finds at the place of another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mirror {
    pub source: VettedDirectory,
    #[serde(with = "crate::raw_path")]
    pub at: PathBuf,
    /// Directories of the host below `at` that are shown read-only inside the mirror, by name.
    pub shown: Vec<String>,
}

/// Something that most commands do not need, and that weakens the fence a little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// The host's shared memory objects in Tier A; Tier B always has private ones.
    SharedMemory,
    /// New terminals.
    Terminals,
    /// `ptrace` and reading the memory of other processes inside the fence.
    Debugging,
    /// User namespaces inside the fence, for programs that bring their own sandbox.
    NestedUserns,
    /// Run as root even where only Tier A is available.
    Root,
}

impl Policy {
    pub(crate) fn allows(&self, allowance: Allowance) -> bool {
        self.allowances.contains(&allowance)
    }
}

/// Which git directories outside the scope are taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitChoice {
    /// Those that lead back to the scope.
    pub leading_back: bool,
    /// Those that the operator names.
    pub named: Vec<PathBuf>,
}

/// A git directory outside the scope. Commits can write it; hooks and configuration in it are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitDirectory {
    pub directory: VettedDirectory,
    /// The top of the files that it describes, if that is known. Its configuration names paths from there.
    pub worktree: Option<PathBuf>,
    /// The repository's other files, where the scope is one folder of them.
    pub around: Option<SurroundingTree>,
}

/// The files around a scope that is a folder of a repository. git compares them with its index, for which names, sizes
/// and times are enough; contents cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurroundingTree {
    pub top: PathBuf,
    /// What git reads in it all the same: patterns of files to ignore, attributes, and files that may have changed
    /// since the index was written.
    pub readable: Vec<PathBuf>,
}

/// Whether the metadata of a scope is kept from the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataChoice {
    Writable,
    /// Kept, except for these names.
    Kept {
        except: BTreeSet<String>,
    },
}

/// What can be read besides what can be written.
#[derive(Clone, Debug)]
pub enum ReadMode {
    /// Everything but the deny list, other programs' temporary files and run-time sockets. The listed
    /// paths are readable even there.
    Open { also: Vec<PathBuf> },
    /// The system's programs and libraries, and the listed paths.
    Strict { readable: Vec<PathBuf> },
}

/// Temporary files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Temp {
    /// Private to this command and gone with it.
    Private {
        /// The directory that serves where no private mount can be made.
        directory: PathBuf,
        /// The most that it may hold; only a private mount can enforce it.
        bytes: u64,
    },
    None,
}

/// What the command can reach over the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Not restricted.
    All,
    None,
    /// A private loopback, with these ports of the host's loopback mirrored.
    Localhost {
        ports: Vec<u16>,
    },
    /// Only through the proxy: HTTP to port 80 and CONNECT to 443, to these hosts or, if `None`, to any
    /// public one.
    Http {
        hosts: Option<Vec<String>>,
    },
    /// TCP to these ports of any address. Named as what it is: not an address filter.
    Ports {
        ports: Vec<u16>,
    },
}

impl Network {
    pub fn name(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::None => "none",
            Self::Localhost { .. } => "localhost",
            Self::Http { .. } => "http",
            Self::Ports { .. } => "ports",
        }
    }

    /// Whether it can only be had with a network namespace.
    pub(crate) fn needs_namespace(&self) -> bool {
        matches!(self, Self::Localhost { .. } | Self::Http { .. })
    }
}

/// Sockets of family `AF_UNIX`. Pairs of connected ones are always possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "lowercase")]
pub enum UnixSockets {
    Deny,
    Allow,
}

/// Bounds on what the command uses. `None`: as much as its parent may.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub memory: Option<Limit<u64>>,
    pub processes: Option<Limit<u64>>,
    /// Cores, as in 1.5.
    pub cpus: Option<f64>,
    pub open_files: Option<u64>,
    /// The longest file that can be written.
    pub file_size: Option<u64>,
}

/// A bound, and what it means if the host cannot enforce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T> {
    pub value: T,
    pub origin: LimitOrigin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOrigin {
    /// The user asked for it: without it the command does not run.
    Asked,
    /// A sensible default: without it the report says so.
    Default,
}

/// Which layers to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierChoice {
    A,
    B,
    /// The best that the host offers.
    Auto,
}

/// The layers around a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Hygiene, Landlock, seccomp.
    A,
    /// Tier A and namespaces of its own.
    B,
}

impl FromStr for TierChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "a" | "A" => Ok(Self::A),
            "b" | "B" => Ok(Self::B),
            "auto" => Ok(Self::Auto),
            _ => Err("expected a, b or auto".to_owned()),
        }
    }
}

/// What a walk of the scope found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardlinkCount {
    /// Files with a name inside the scope and another one outside.
    pub shared: u64,
    /// The walk ended before it had seen everything.
    pub is_partial: bool,
}

/// What runs inside.
#[derive(Clone, Debug)]
pub struct Command {
    /// Absolute: the search along `PATH` is the caller's.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts, inside what it may read.
    pub directory: PathBuf,
    /// One more variable, which shows the command its confinement as JSON.
    pub confinement_variable: Option<OsString>,
    /// Open files that it inherits.
    pub files: Option<PassedFiles>,
}
