//! The legs: everything the same load is put on, in the order of the tables.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leg {
    DirectStdio,
    BareAxum,
    RingfenceSession,
    RingfenceShared,
    RingfenceFenced,
    Supergateway,
    NpmMcpProxy,
    PypiMcpProxy,
}

impl Leg {
    pub(crate) const ALL: [Self; 8] = [
        Self::DirectStdio,
        Self::BareAxum,
        Self::RingfenceSession,
        Self::RingfenceShared,
        Self::RingfenceFenced,
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
            Self::Supergateway => "supergateway",
            Self::NpmMcpProxy => "npm-mcp-proxy",
            Self::PypiMcpProxy => "pypi-mcp-proxy",
        }
    }

    /// Somebody else's gateway: a wrong answer from it is a footnote, not a failure of the run.
    pub(crate) fn is_peer(self) -> bool {
        matches!(self, Self::Supergateway | Self::NpmMcpProxy | Self::PypiMcpProxy)
    }
}
