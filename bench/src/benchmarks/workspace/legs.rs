//! The legs and measurements of the workspace benchmark, and the figures of each.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkspaceLeg {
    /// `ringfence serve`: the built-in server, each session in its fence.
    BuiltIn,
    /// `ringfence serve --unfenced`: the built-in server with its resolver but without a fence.
    BuiltInUnfenced,
    /// `ringfence serve --unfenced -- …`: the same tools with plain `std::fs` and without path checks.
    PlainUnfenced,
    /// `ringfence serve -- node …`: the official server, fenced as well.
    Filesystem,
    /// `ringfence workspace`, driven directly.
    Stdio,
    /// The program ripgrep.
    Ripgrep,
    /// A program that exits at once, in the fence of a session.
    StaticFenced,
    StaticUnfenced,
}

impl WorkspaceLeg {
    pub(crate) const ALL: [Self; 8] = [
        Self::BuiltIn,
        Self::BuiltInUnfenced,
        Self::PlainUnfenced,
        Self::Filesystem,
        Self::Stdio,
        Self::Ripgrep,
        Self::StaticFenced,
        Self::StaticUnfenced,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::BuiltInUnfenced => "built-in-unfenced",
            Self::PlainUnfenced => "plain-unfenced",
            Self::Filesystem => "server-filesystem",
            Self::Stdio => "stdio",
            Self::Ripgrep => "rg",
            Self::StaticFenced => "static-fenced",
            Self::StaticUnfenced => "static-unfenced",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkspaceMeasurement {
    Overhead,
    Peer,
    Grep,
    Memory,
    Creation,
}

impl WorkspaceMeasurement {
    pub(crate) const ALL: [Self; 5] = [Self::Overhead, Self::Peer, Self::Grep, Self::Memory, Self::Creation];

    /// The name that `--only` takes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overhead => "overhead",
            Self::Peer => "peer",
            Self::Grep => "grep",
            Self::Memory => "idle",
            Self::Creation => "start",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Overhead => {
                "What resolver and fence cost: one session, one call in flight, 2 KiB files, all on one core"
            }
            Self::Peer => "Against @modelcontextprotocol/server-filesystem, both fenced: p50 of a call",
            Self::Grep => "Search through 100 000 files, warm: wall time of one search",
            Self::Memory => "Memory (PSS) of an idle worker after initialize and tools/list",
            Self::Creation => "Session creation: initialize, until it is answered",
        }
    }

    pub(crate) fn legs(self) -> &'static [WorkspaceLeg] {
        use WorkspaceLeg as L;
        match self {
            Self::Overhead => &[L::BuiltIn, L::BuiltInUnfenced, L::PlainUnfenced],
            Self::Peer => &[L::BuiltIn, L::Filesystem],
            Self::Grep => &[L::Stdio, L::Ripgrep],
            Self::Memory => &[L::BuiltIn],
            Self::Creation => &[L::BuiltIn, L::BuiltInUnfenced, L::Stdio, L::StaticFenced, L::StaticUnfenced],
        }
    }

    pub(crate) fn figures(self) -> &'static [WorkspaceFigure] {
        use WorkspaceFigure as F;
        match self {
            Self::Overhead => &[F::Read, F::Write, F::List],
            Self::Peer => &[F::PeerRead, F::PeerWrite, F::PeerEdit, F::PeerFindName, F::PeerFindText],
            Self::Grep => &[F::GrepFew, F::GrepMany],
            Self::Memory => &[F::MemoryAlone, F::MemoryAmongOthers],
            Self::Creation => &[F::Initialize],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkspaceFigure {
    Read,
    Write,
    List,
    PeerRead,
    PeerWrite,
    PeerEdit,
    PeerFindName,
    PeerFindText,
    GrepFew,
    GrepMany,
    MemoryAlone,
    MemoryAmongOthers,
    Initialize,
}

impl WorkspaceFigure {
    /// The name in the JSON file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Read => "read_file_p50_us",
            Self::Write => "write_file_p50_us",
            Self::List => "list_dir_p50_us",
            Self::PeerRead => "peer_read_p50_us",
            Self::PeerWrite => "peer_write_p50_us",
            Self::PeerEdit => "peer_edit_p50_us",
            Self::PeerFindName => "peer_find_by_name_p50_us",
            Self::PeerFindText => "peer_find_text_p50_us",
            Self::GrepFew => "grep_few_hits_ms",
            Self::GrepMany => "grep_many_hits_ms",
            Self::MemoryAlone => "worker_pss_kib_1_session",
            Self::MemoryAmongOthers => "worker_pss_kib_8_sessions",
            Self::Initialize => "initialize_p50_us",
        }
    }

    /// The heading of the table column.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Read => "read_file µs",
            Self::Write => "write_file µs",
            Self::List => "list_dir µs",
            Self::PeerRead => "read µs",
            Self::PeerWrite => "write µs",
            Self::PeerEdit => "edit µs",
            Self::PeerFindName => "find by name µs",
            Self::PeerFindText => "grep / read all µs",
            Self::GrepFew => "few hits, ms",
            Self::GrepMany => "many hits, ms",
            Self::MemoryAlone => "KiB, 1 session",
            Self::MemoryAmongOthers => "KiB each, 8 sessions",
            Self::Initialize => "p50 µs",
        }
    }
}
