//! What the fence is measured against, and with: everything that starts the same command, in the order of the
//! tables; and the figures that each yields.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceVariant {
    /// `posix_spawn` alone.
    Unfenced,
    /// The policy of a plain `ringfence run` without namespaces, by a launcher that is loaded already.
    TierA,
    /// The same by a launcher that is started for it alone, as `ringfence run` does.
    TierACold,
    /// All namespaces, the network's too.
    TierB,
    TierBCold,
    /// Somebody else's sandbox with the same namespaces.
    Bubblewrap,
}

impl FenceVariant {
    pub(crate) const ALL: [Self; 6] =
        [Self::Unfenced, Self::TierA, Self::TierACold, Self::TierB, Self::TierBCold, Self::Bubblewrap];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unfenced => "unfenced",
            Self::TierA => "tier-a",
            Self::TierACold => "tier-a-cold",
            Self::TierB => "tier-b-offline",
            Self::TierBCold => "tier-b-offline-cold",
            Self::Bubblewrap => "bubblewrap",
        }
    }

    /// Whether its absence or failure is a footnote, not a failure of the run.
    pub(crate) fn is_foreign(self) -> bool {
        self == Self::Bubblewrap
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceMeasurement {
    Launch,
    OpenClose,
    Keeper,
}

impl FenceMeasurement {
    pub(crate) const ALL: [Self; 3] = [Self::Launch, Self::OpenClose, Self::Keeper];

    /// The name that `--only` takes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::OpenClose => "open",
            Self::Keeper => "keeper",
        }
    }

    /// One round in so many includes it: the longer it takes, the fewer.
    pub(crate) fn rounds_between(self) -> usize {
        match self {
            Self::Launch => 1,
            Self::OpenClose => 5,
            Self::Keeper => 40,
        }
    }

    /// How the launcher was started makes no difference once the command runs.
    pub(crate) fn concerns(self, variant: FenceVariant) -> bool {
        use FenceVariant as V;
        match self {
            Self::Launch => true,
            Self::OpenClose => matches!(variant, V::Unfenced | V::TierA | V::TierB | V::Bubblewrap),
            Self::Keeper => matches!(variant, V::TierA | V::TierB | V::Bubblewrap),
        }
    }

    pub(crate) fn figures(self) -> &'static [FenceFigure] {
        use FenceFigure as F;
        match self {
            Self::Launch => &[F::Launch],
            Self::OpenClose => &[F::OpenClose],
            Self::Keeper => {
                &[F::KeeperAlone, F::KeeperAloneDirty, F::KeeperAmongOthers, F::KeeperAmongOthersDirty]
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceFigure {
    Launch,
    OpenClose,
    KeeperAlone,
    KeeperAloneDirty,
    KeeperAmongOthers,
    KeeperAmongOthersDirty,
}

impl FenceFigure {
    /// The name in the JSON file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Launch => "launch_and_wait_us",
            Self::OpenClose => "open_close_ns",
            Self::KeeperAlone => "keeper_pss_kib_1_fence",
            Self::KeeperAloneDirty => "keeper_private_dirty_kib_1_fence",
            Self::KeeperAmongOthers => "keeper_pss_kib_8_fences",
            Self::KeeperAmongOthersDirty => "keeper_private_dirty_kib_8_fences",
        }
    }

    /// The words at the head of the table column.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Launch => "µs",
            Self::OpenClose => "ns",
            Self::KeeperAlone => "PSS KiB, 1 fence",
            Self::KeeperAloneDirty => "of it private dirty",
            Self::KeeperAmongOthers => "PSS KiB each, 8 fences",
            Self::KeeperAmongOthersDirty => "of it private dirty each",
        }
    }
}
