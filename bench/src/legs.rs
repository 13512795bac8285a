//! The legs: the programs that get the same load, in the order of the tables.

pub(crate) mod peers;
pub(crate) mod running_leg;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leg {
    DirectStdio,
    BareAxum,
    RingfenceSession,
    RingfenceShared,
    RingfenceFenced,
    BeforeSession,
    BeforeShared,
    BeforeFenced,
    Supergateway,
    NpmMcpProxy,
    PypiMcpProxy,
}

impl Leg {
    pub(crate) const ALL: [Self; 11] = [
        Self::DirectStdio,
        Self::BareAxum,
        Self::RingfenceSession,
        Self::RingfenceShared,
        Self::RingfenceFenced,
        Self::BeforeSession,
        Self::BeforeShared,
        Self::BeforeFenced,
        Self::Supergateway,
        Self::NpmMcpProxy,
        Self::PypiMcpProxy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DirectStdio => "direct-stdio",
            Self::BareAxum => "bare-axum",
            Self::RingfenceSession => "ringfence-session",
            Self::RingfenceShared => "ringfence-shared",
            Self::RingfenceFenced => "ringfence-fenced",
            Self::BeforeSession => "before-session",
            Self::BeforeShared => "before-shared",
            Self::BeforeFenced => "before-fenced",
            Self::Supergateway => "supergateway",
            Self::NpmMcpProxy => "npm-mcp-proxy",
            Self::PypiMcpProxy => "pypi-mcp-proxy",
        }
    }

    /// The same leg with the build that `--before` names.
    pub(crate) fn before(self) -> Option<Self> {
        match self {
            Self::RingfenceSession => Some(Self::BeforeSession),
            Self::RingfenceShared => Some(Self::BeforeShared),
            Self::RingfenceFenced => Some(Self::BeforeFenced),
            _ => None,
        }
    }

    pub(crate) fn is_before(self) -> bool {
        matches!(self, Self::BeforeSession | Self::BeforeShared | Self::BeforeFenced)
    }

    pub(crate) fn is_fenced(self) -> bool {
        matches!(self, Self::RingfenceFenced | Self::BeforeFenced)
    }

    /// True for other projects' gateways. A wrong answer from a peer is a footnote and does not fail the run.
    pub(crate) fn is_peer(self) -> bool {
        matches!(self, Self::Supergateway | Self::NpmMcpProxy | Self::PypiMcpProxy)
    }
}
