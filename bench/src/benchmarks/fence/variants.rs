//! The variants of starting the same command, in the order of the tables, and the figures that each yields.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceVariant {
    /// `posix_spawn` alone.
    Unfenced,
    /// The policy of a plain `ringfence run` without namespaces, with a launcher that is already loaded.
    TierA,
    /// The same, with a launcher started for this command alone, as `ringfence run` does.
    TierACold,
    /// All namespaces, including the network namespace.
    TierB,
    TierBCold,
    /// Another sandbox program with the same namespaces and mounts.
    Bubblewrap,
    /// `ringfence run` with the policy of Tier B: its own start, arranging and clearing away included.
    Run,
    /// The same of the build that `--before` names.
    RunBefore,
}

impl FenceVariant {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unfenced,
        Self::TierA,
        Self::TierACold,
        Self::TierB,
        Self::TierBCold,
        Self::Bubblewrap,
        Self::Run,
        Self::RunBefore,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unfenced => "unfenced",
            Self::TierA => "tier-a",
            Self::TierACold => "tier-a-cold",
            Self::TierB => "tier-b-offline",
            Self::TierBCold => "tier-b-offline-cold",
            Self::Bubblewrap => "bubblewrap",
            Self::Run => "run-tier-b",
            Self::RunBefore => "before-run-tier-b",
        }
    }

    /// Compared with each other, and measured only then.
    pub(crate) fn is_for_before(self) -> bool {
        matches!(self, Self::Run | Self::RunBefore)
    }

    /// True if its absence or failure is a footnote and does not fail the run.
    pub(crate) fn is_foreign(self) -> bool {
        self == Self::Bubblewrap
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceMeasurement {
    Launch,
    OpenClose,
    Supervisor,
}

impl FenceMeasurement {
    pub(crate) const ALL: [Self; 3] = [Self::Launch, Self::OpenClose, Self::Supervisor];

    /// The name that `--only` takes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::OpenClose => "open",
            Self::Supervisor => "supervisor",
        }
    }

    /// It is measured once in this many rounds: slow measurements are taken less often.
    pub(crate) fn rounds_between(self) -> usize {
        match self {
            Self::Launch => 1,
            Self::OpenClose => 5,
            Self::Supervisor => 40,
        }
    }

    /// Returns true if the variant is measured. The cold variants only differ in the launch: once the command runs,
    /// it makes no difference how the launcher was started.
    pub(crate) fn concerns(self, variant: FenceVariant) -> bool {
        use FenceVariant as V;
        match self {
            Self::Launch => true,
            Self::OpenClose => matches!(variant, V::Unfenced | V::TierA | V::TierB | V::Bubblewrap),
            Self::Supervisor => matches!(variant, V::TierA | V::TierB | V::Bubblewrap),
        }
    }

    pub(crate) fn figures(self) -> &'static [FenceFigure] {
        use FenceFigure as F;
        match self {
            Self::Launch => &[F::Launch],
            Self::OpenClose => &[F::OpenClose],
            Self::Supervisor => &[
                F::SupervisorAlone,
                F::SupervisorAloneDirty,
                F::SupervisorAmongOthers,
                F::SupervisorAmongOthersDirty,
            ],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceFigure {
    Launch,
    OpenClose,
    SupervisorAlone,
    SupervisorAloneDirty,
    SupervisorAmongOthers,
    SupervisorAmongOthersDirty,
}

impl FenceFigure {
    /// The name in the JSON file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Launch => "launch_and_wait_us",
            Self::OpenClose => "open_close_ns",
            Self::SupervisorAlone => "supervisor_pss_kib_1_fence",
            Self::SupervisorAloneDirty => "supervisor_private_dirty_kib_1_fence",
            Self::SupervisorAmongOthers => "supervisor_pss_kib_8_fences",
            Self::SupervisorAmongOthersDirty => "supervisor_private_dirty_kib_8_fences",
        }
    }

    /// The heading of the table column.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Launch => "µs",
            Self::OpenClose => "ns",
            Self::SupervisorAlone => "PSS KiB, 1 fence",
            Self::SupervisorAloneDirty => "of it private dirty",
            Self::SupervisorAmongOthers => "PSS KiB each, 8 fences",
            Self::SupervisorAmongOthersDirty => "of it private dirty each",
        }
    }
}
