//! Landlock: which files may be read and written, whatever the mounts look like.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};

use super::{InStep, StepError, reads};
use crate::paths::VettedDirectory;
use crate::plan::{LandlockPlan, ReadPlan};

/// The newest interface whose rights are known and used; older kernels give what they have, and the plan has
/// counted on no more.
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
    let mut rules = Rules { ruleset: ruleset.create().step("landlock")? };
    rules.writable(plan)?;
    rules.devices(plan)?;
    rules.readable(plan)?;
    for port in plan.tcp_connect.iter().flatten() {
        rules.ruleset =
            rules.ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).step("landlock")?;
    }
    let status = rules.ruleset.restrict_self().step("landlock")?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(StepError::new("landlock", "the kernel enforces nothing"));
    }
    Ok(())
}

/// The directory must be the one that was looked at, not another that took its name since.
pub(super) fn check_identity(directory: &OwnedFd, vetted: &VettedDirectory) -> Result<(), StepError> {
    let stat = rustix::fs::fstat(directory).step("scope")?;
    if (stat.st_dev, stat.st_ino) == (vetted.device, vetted.inode) {
        return Ok(());
    }
    Err(StepError::new(
        "scope",
        format!("{} is not the directory that it was before", vetted.path().display()),
    ))
}

struct Rules {
    ruleset: RulesetCreated,
}

impl Rules {
    fn writable(&mut self, plan: &LandlockPlan) -> Result<(), StepError> {
        let rights =
            AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
        for root in &plan.read_write {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::open(root.path(), flags, Mode::empty())
                .map_err(|error| StepError::new("scope", format!("{}: {error}", root.path().display())))?;
            check_identity(&directory, root)?;
            self.allow(&directory, rights)?;
        }
        for path in &plan.writable_temp {
            self.allow_if_present(path, rights)?;
        }
        Ok(())
    }

    fn devices(&mut self, plan: &LandlockPlan) -> Result<(), StepError> {
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
        self.own_terminal()
    }

    /// A terminal that the command has already may be opened again, as `/dev/stderr` does.
    fn own_terminal(&mut self) -> Result<(), StepError> {
        for name in ["0", "1", "2"] {
            let Ok(file) = open(&Path::new("/proc/self/fd").join(name)) else { continue };
            let is_device = rustix::fs::fstat(&file)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_char_device());
            let path = std::fs::read_link(Path::new("/proc/self/fd").join(name)).unwrap_or_default();
            if is_device && path.starts_with("/dev/pts") {
                self.allow(&file, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev)?;
            }
        }
        Ok(())
    }

    fn readable(&mut self, plan: &LandlockPlan) -> Result<(), StepError> {
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
            ReadPlan::AllExcept { denied, list_everywhere } => {
                if *list_everywhere {
                    self.allow_if_present(Path::new("/"), AccessFs::ReadDir.into())?;
                }
                reads::all_except(denied, &mut |readable| {
                    let file = AccessFs::ReadFile | AccessFs::Execute;
                    self.add(&readable.entry, if readable.is_directory { rights } else { file })
                })
            }
        }
    }

    /// A path that is not there now is not granted: that fails closed.
    fn allow_if_present(&mut self, path: &Path, rights: BitFlags<AccessFs>) -> Result<(), StepError> {
        match open(path) {
            Ok(file) => self.allow(&file, rights),
            Err(_) => Ok(()),
        }
    }

    fn allow(&mut self, file: &OwnedFd, rights: BitFlags<AccessFs>) -> Result<(), StepError> {
        let stat = rustix::fs::fstat(file).step("landlock")?;
        // Rights of directories on a file would make the rule invalid.
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        self.add(file, if is_directory { rights } else { rights & AccessFs::from_file(NEWEST) })
    }

    fn add(&mut self, file: &OwnedFd, rights: BitFlags<AccessFs>) -> Result<(), StepError> {
        (&mut self.ruleset).add_rule(PathBeneath::new(file.as_fd(), rights)).map(|_| ()).step("landlock")
    }
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}
