//! Landlock: which files may be read and written, independently of the mounts.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};

use super::reads::{self, Denied, FoundKind};
use super::{InStep, StepError, sys};
use crate::link_walk::{Walk, walk};
use crate::paths::VettedDirectory;
use crate::plan::{LandlockPlan, ReadPlan};

/// The newest interface whose rights are used. Older kernels enforce what they know, which the plan has taken into
/// account.
const NEWEST: ABI = ABI::V9;

/// Devices that programs take for granted.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
const TERMINALS: &[&str] = &["/dev/tty", "/dev/ptmx", "/dev/pts"];

/// Restricts this process for good.
pub(super) fn restrict(plan: &LandlockPlan) -> Result<(), StepError> {
    if plan.version == 0 {
        return Ok(());
    }
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .step("landlock")?
        .scope(Scope::from_all(NEWEST))
        .step("landlock")?;
    if plan.tcp_connect.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST)).step("landlock")?;
    }
    let mut ruleset = ruleset.create().step("landlock")?;
    let rules = Rules::of(&ruleset, plan)?;
    rules.writable(plan)?;
    rules.devices(plan)?;
    rules.readable(plan)?;
    rules.listed(plan)?;
    for port in plan.tcp_connect.iter().flatten() {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).step("landlock")?;
    }
    let status = ruleset.restrict_self().step("landlock")?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(StepError::new("landlock", "the kernel enforces nothing"));
    }
    Ok(())
}

/// Opens a vetted directory, if it is still the same one.
pub(super) fn open_vetted(vetted: &VettedDirectory) -> Result<OwnedFd, StepError> {
    let failed = |error| StepError::new("scope", format!("{}: {error}", vetted.path().display()));
    vetted.open(OFlags::PATH).map_err(failed)
}

/// Adds rules about files. It calls the kernel directly, because there may be hundreds of rules and the library would
/// look at every file again.
struct Rules<'a> {
    ruleset: OwnedFd,
    /// Links in these are not followed: sessions that work there could lead a rule to any other place.
    writable: &'a [VettedDirectory],
    /// What this kernel knows; a rule with more would be invalid.
    known: BitFlags<AccessFs>,
}

impl<'a> Rules<'a> {
    fn of(ruleset: &RulesetCreated, plan: &'a LandlockPlan) -> Result<Self, StepError> {
        let descriptor: Option<OwnedFd> = ruleset.try_clone().step("landlock")?.into();
        let ruleset = descriptor.ok_or_else(|| StepError::new("landlock", "the kernel has none"))?;
        let version = i32::try_from(plan.version).unwrap_or(i32::MAX);
        Ok(Self { ruleset, writable: &plan.read_write, known: AccessFs::from_all(ABI::from(version)) })
    }

    fn writable(&self, plan: &LandlockPlan) -> Result<(), StepError> {
        let rights =
            AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
        for root in &plan.read_write {
            self.allow(&open_vetted(root)?, rights)?;
        }
        for root in &plan.read_only {
            self.allow(&open_vetted(root)?, AccessFs::from_read(NEWEST))?;
        }
        for path in &plan.writable_temp {
            self.allow_if_present(path, rights)?;
        }
        Ok(())
    }

    fn devices(&self, plan: &LandlockPlan) -> Result<(), StepError> {
        for path in DEVICES {
            self.allow_if_present(Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
        }
        if plan.pty {
            for path in TERMINALS {
                self.allow_if_present(
                    Path::new(path),
                    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev,
                )?;
            }
        }
        self.own_streams()
    }

    /// Lets the command open its own standard streams again, as through `/dev/stderr`, with the rights that their
    /// descriptors have. Truncating is among the rights of a descriptor to write.
    fn own_streams(&self) -> Result<(), StepError> {
        for (name, stream) in
            [("0", rustix::stdio::stdin()), ("1", rustix::stdio::stdout()), ("2", rustix::stdio::stderr())]
        {
            let Ok(stat) = rustix::fs::fstat(stream) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let path = Path::new("/proc/self/fd").join(name);
            let is_terminal = || std::fs::read_link(&path).is_ok_and(|path| path.starts_with("/dev/pts"));
            let rights = match (kind, rustix::fs::fcntl_getfl(stream)) {
                (FileType::CharacterDevice, _) if is_terminal() => {
                    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev
                }
                (FileType::RegularFile, Ok(mode)) => match mode & OFlags::RWMODE {
                    OFlags::RDONLY => AccessFs::ReadFile.into(),
                    OFlags::WRONLY => AccessFs::WriteFile | AccessFs::Truncate,
                    _ => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
                },
                _ => continue,
            };
            // The kernel's own link leads to the stream itself.
            if let Ok(file) = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                self.allow(&file, rights)?;
            }
        }
        Ok(())
    }

    fn readable(&self, plan: &LandlockPlan) -> Result<(), StepError> {
        let rights = AccessFs::from_read(NEWEST);
        for path in &plan.also_readable {
            self.allow_if_present(path, rights)?;
        }
        match &plan.read {
            ReadPlan::Only(paths) => {
                for path in paths {
                    self.allow_if_present(path, rights)?;
                }
                Ok(())
            }
            ReadPlan::OwnRoot if plan.listed.is_empty() => self.allow_if_present(Path::new("/"), rights),
            ReadPlan::OwnRoot => {
                self.allow_if_present(Path::new("/"), AccessFs::ReadDir.into())?;
                self.all_except(plan.listed.iter().map(|tree| tree.top.as_path()))
            }
            ReadPlan::AllExcept(denied) => self.all_except(denied.iter().map(PathBuf::as_path)),
        }
    }

    fn all_except<'p>(&self, denied: impl IntoIterator<Item = &'p Path>) -> Result<(), StepError> {
        reads::all_except(Path::new("/"), &Denied::of(denied), &mut |found| match found.kind {
            FoundKind::Tree { entry, is_directory } => {
                let file = AccessFs::ReadFile | AccessFs::Execute;
                self.add(&entry, if is_directory { AccessFs::from_read(NEWEST) } else { file })
            }
            FoundKind::Link(_) => Ok(()),
        })
    }

    /// Lets the names in the trees around the scope be listed, and the files in them be read that git needs.
    fn listed(&self, plan: &LandlockPlan) -> Result<(), StepError> {
        let allow = |path: &Path, rights: BitFlags<AccessFs>| match walk(path, &mut |_, _| false) {
            Walk::Found(held) if held.is_file() == rights.contains(AccessFs::ReadFile) => {
                self.allow(&held.into_descriptor(), rights)
            }
            _ => Ok(()),
        };
        for tree in &plan.listed {
            allow(&tree.top, AccessFs::ReadDir.into())?;
            for file in &tree.readable {
                allow(file, AccessFs::ReadFile.into())?;
            }
        }
        Ok(())
    }

    /// Grants nothing for a path that does not exist now, which fails closed.
    fn allow_if_present(&self, path: &Path, rights: BitFlags<AccessFs>) -> Result<(), StepError> {
        let is_trusted = |place: &Path| !self.writable.iter().any(|root| place.starts_with(root.path()));
        match walk(path, &mut |place, _| is_trusted(place)) {
            Walk::Found(held) => self.allow(&held.into_descriptor(), rights),
            Walk::Missing(_) | Walk::Refused => Ok(()),
        }
    }

    fn allow(&self, file: &OwnedFd, rights: BitFlags<AccessFs>) -> Result<(), StepError> {
        let stat = rustix::fs::fstat(file).step("landlock")?;
        // Rights of directories on a file would make the rule invalid.
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        self.add(file, if is_directory { rights } else { rights & AccessFs::from_file(NEWEST) })
    }

    fn add(&self, file: &OwnedFd, rights: BitFlags<AccessFs>) -> Result<(), StepError> {
        sys::add_landlock_rule(self.ruleset.as_fd(), file.as_fd(), (rights & self.known).bits())
            .step("landlock")
    }
}
