//! The measurements and the figures each one yields, with the words the tables use for them.

use crate::legs::Leg;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measurement {
    Latency,
    Throughput1x32,
    Throughput32x1,
    Throughput64x4,
    Creation,
    CreationRate,
    Big1MiB,
    Big8MiB,
    Memory,
    Held,
    Vanished,
    ProcessesAfterDelete,
    ProcessesAfterVanishing,
}

impl Measurement {
    pub(crate) const ALL: [Self; 13] = [
        Self::Latency,
        Self::Throughput1x32,
        Self::Throughput32x1,
        Self::Throughput64x4,
        Self::Creation,
        Self::CreationRate,
        Self::Big1MiB,
        Self::Big8MiB,
        Self::Memory,
        Self::Held,
        Self::Vanished,
        Self::ProcessesAfterDelete,
        Self::ProcessesAfterVanishing,
    ];

    /// The name `--only` takes; measurements of one table share it.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput1x32 | Self::Throughput32x1 | Self::Throughput64x4 => "throughput",
            Self::Creation | Self::CreationRate => "creation",
            Self::Big1MiB | Self::Big8MiB => "big",
            Self::Memory => "memory",
            Self::Held => "held",
            Self::Vanished => "vanished",
            Self::ProcessesAfterDelete | Self::ProcessesAfterVanishing => "processes",
        }
    }

    /// Returns true for memory, held sessions and leftover processes, which need a gateway to themselves.
    pub(crate) fn needs_a_fresh_gateway(self) -> bool {
        matches!(self.group(), "memory" | "held" | "vanished" | "processes")
    }

    /// Whether the measurement is made with a leg.
    pub(crate) fn is_for(self, leg: Leg) -> bool {
        match self {
            Self::Held => leg.is_fenced(),
            // Earlier builds cannot be told when a client counts as gone.
            Self::Vanished => leg == Leg::RingfenceFenced,
            _ => true,
        }
    }

    /// What the gateway is told beside the leg's own options.
    pub(crate) fn gateway_options(self) -> &'static [&'static str] {
        match self {
            Self::Vanished => &["--client-grace", "1"],
            _ => &[],
        }
    }

    pub(crate) fn figures(self) -> &'static [Figure] {
        use Figure as F;
        match self {
            Self::Latency => &[F::LatencyP50, F::LatencyP99],
            Self::Throughput1x32 => &[F::Throughput1x32, F::GatewayCpu, F::ChildrenCpu],
            Self::Throughput32x1 => &[F::Throughput32x1],
            Self::Throughput64x4 => &[F::Throughput64x4],
            Self::Creation => &[F::CreationP50, F::CreationP99],
            Self::CreationRate => &[F::CreationRate],
            Self::Big1MiB => &[F::Big1MiB],
            Self::Big8MiB => &[F::Big8MiB],
            Self::Memory => &[
                F::GatewayMemory1,
                F::GatewayMemory50,
                F::GatewayMemory200,
                F::ChildrenMemory1,
                F::ChildrenMemory50,
                F::ChildrenMemory200,
                F::GatewayMemoryPerSession,
            ],
            Self::Held => &[F::Held500],
            Self::Vanished => &[F::MemoryPerVanished],
            Self::ProcessesAfterDelete => &[F::ProcessesAfterDelete],
            Self::ProcessesAfterVanishing => &[F::ProcessesAfterVanishing],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    LatencyP50,
    LatencyP99,
    Throughput1x32,
    Throughput32x1,
    Throughput64x4,
    GatewayCpu,
    ChildrenCpu,
    CreationP50,
    CreationP99,
    CreationRate,
    Big1MiB,
    Big8MiB,
    GatewayMemory1,
    GatewayMemory50,
    GatewayMemory200,
    ChildrenMemory1,
    ChildrenMemory50,
    ChildrenMemory200,
    GatewayMemoryPerSession,
    Held500,
    MemoryPerVanished,
    ProcessesAfterDelete,
    ProcessesAfterVanishing,
}

impl Figure {
    /// The name in the JSON file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::LatencyP50 => "latency_p50_us",
            Self::LatencyP99 => "latency_p99_us",
            Self::Throughput1x32 => "throughput_1x32_calls_per_s",
            Self::Throughput32x1 => "throughput_32x1_calls_per_s",
            Self::Throughput64x4 => "throughput_64x4_calls_per_s",
            Self::GatewayCpu => "gateway_cpu_us_per_call",
            Self::ChildrenCpu => "children_cpu_us_per_call",
            Self::CreationP50 => "creation_p50_us",
            Self::CreationP99 => "creation_p99_us",
            Self::CreationRate => "creation_8_creators_sessions_per_s",
            Self::Big1MiB => "big_1mib_mb_per_s",
            Self::Big8MiB => "big_8mib_mb_per_s",
            Self::GatewayMemory1 => "gateway_pss_kib_1_session",
            Self::GatewayMemory50 => "gateway_pss_kib_50_sessions",
            Self::GatewayMemory200 => "gateway_pss_kib_200_sessions",
            Self::ChildrenMemory1 => "children_pss_kib_1_session",
            Self::ChildrenMemory50 => "children_pss_kib_50_sessions",
            Self::ChildrenMemory200 => "children_pss_kib_200_sessions",
            Self::GatewayMemoryPerSession => "gateway_kib_per_idle_session",
            Self::Held500 => "sessions_of_500_that_answer",
            Self::MemoryPerVanished => "kib_per_vanished_client",
            Self::ProcessesAfterDelete => "processes_left_after_delete",
            Self::ProcessesAfterVanishing => "processes_left_after_vanishing",
        }
    }

    /// The heading of the table column.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::LatencyP50 | Self::CreationP50 => "p50 µs",
            Self::LatencyP99 | Self::CreationP99 => "p99 µs",
            Self::Throughput1x32 => "1×32 calls/s",
            Self::Throughput32x1 => "32×1 calls/s",
            Self::Throughput64x4 => "64×4 calls/s",
            Self::GatewayCpu => "gateway CPU µs/call (1×32)",
            Self::ChildrenCpu => "children CPU µs/call (1×32)",
            Self::CreationRate => "sessions/s (8 creators)",
            Self::Big1MiB => "1 MiB MB/s",
            Self::Big8MiB => "8 MiB MB/s",
            Self::GatewayMemory1 => "gateway KiB, 1",
            Self::GatewayMemory50 => "gateway KiB, 50",
            Self::GatewayMemory200 => "gateway KiB, 200",
            Self::ChildrenMemory1 => "children KiB, 1",
            Self::ChildrenMemory50 => "children KiB, 50",
            Self::ChildrenMemory200 => "children KiB, 200",
            Self::GatewayMemoryPerSession => "gateway KiB per idle session",
            Self::Held500 => "of 500 idle sessions, answer",
            Self::MemoryPerVanished => "KiB per vanished client",
            Self::ProcessesAfterDelete => "after 20 × DELETE",
            Self::ProcessesAfterVanishing => "after 20 clients vanished",
        }
    }
}
