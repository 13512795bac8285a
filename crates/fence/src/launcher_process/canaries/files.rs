//! Canaries for files: writing, reading, seeing and changing what the fence does not show or keeps.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::super::{StepError, sys};
use super::{expect, must_fail, surprise};
use crate::ProtectionName as Name;
use crate::launch_request::LaunchRequest;
use crate::paths::VettedDirectory;
use crate::plan::{ReadPlan, Steps};
use crate::policy::Tier;

const REFUSALS: &[Errno] = &[Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOENT];

/// Directories of a host that no program needs to run. They are tried where the plan shows nothing around or in them.
const ELSEWHERE: &[&str] = &["/var/log", "/boot"];
/// A directory of the host that every root shows.
const SHOWN: &str = "/usr";
/// What is tried to be made where nothing may be made.
const CANARY: &str = ".ringfence-canary";
/// The temporary directories of all programs of a host.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];

/// The fence must allow what it is meant to allow.
pub(super) fn write_inside(request: &LaunchRequest) -> Result<(), StepError> {
    for root in &request.steps.landlock.read_write {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::open(root.path(), flags, Mode::from_raw_mode(0o600)) {
            // File systems without unnamed files cannot be tried without leaving a trace.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSPC | Errno::DQUOT) => {}
            Err(errno) => {
                return Err(surprise(&format!("write in {}", root.path().display()), &errno.to_string()));
            }
        }
    }
    Ok(())
}

pub(super) fn write_outside(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    create_in(request, &request.canaries.outside)?;
    for root in &request.steps.landlock.read_only {
        create_in(request, root.path())?;
    }
    if request.steps.tier == Tier::B {
        write_in_root()?;
    }
    Ok(&[Name::FsWriteScope])
}

/// The root is this fence's own, and the kernel's settings in it cannot be changed.
fn write_in_root() -> Result<(), StepError> {
    must_fail("write in the root", &touch(Path::new("/")), &[Errno::ROFS])?;
    let settings = "/proc/sys/kernel/hostname";
    let opened = rustix::fs::open(settings, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    must_fail(settings, &opened, REFUSALS)
}

fn create_in(request: &LaunchRequest, directory: &Path) -> Result<(), StepError> {
    let path = directory.join(CANARY);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let created = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
    if let Ok(file) = &created {
        let _ = rustix::fs::unlink(&path);
        // The place of a mount below it, in the private temporary directory.
        if is_of_own_root(request, &rustix::fs::fstat(file)) {
            return Ok(());
        }
    }
    must_fail("write outside the scope", &created, REFUSALS)
}

/// Lists directories that strict reading leaves out.
pub(super) fn read_outside(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    let steps = &request.steps;
    if !reads_strictly(steps) {
        return Ok(&[]);
    }
    let outside = request.canaries.outside.as_path();
    let is_left_out =
        is_absent(steps, outside) || !readable(steps).iter().any(|root| outside.starts_with(root));
    let elsewhere = ELSEWHERE.iter().map(Path::new).filter(|path| is_apart(steps, path));
    let mut shown: &[Name] = &[];
    for path in elsewhere.chain(is_left_out.then_some(outside)) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(listed) = rustix::fs::open(path, flags, Mode::empty())
            && !is_of_own_root(request, &rustix::fs::fstat(&listed))
        {
            return Err(surprise(&path.display().to_string(), "can be read"));
        }
        shown = &[Name::FsReadScope];
    }
    Ok(shown)
}

fn reads_strictly(steps: &Steps) -> bool {
    match &steps.namespaces {
        Some(plan) => !plan.whole_sys,
        None => steps.landlock.version > 0 && matches!(steps.landlock.read, ReadPlan::Only(_)),
    }
}

/// Everything that the plan makes readable on purpose.
fn readable(steps: &Steps) -> Vec<&Path> {
    let landlock = &steps.landlock;
    let own = landlock.read_write.iter().chain(&landlock.read_only).map(VettedDirectory::path);
    let named = landlock.also_readable.iter().chain(&landlock.writable_temp);
    let listed = landlock.listed.iter().map(|tree| &tree.top);
    let system = match &landlock.read {
        ReadPlan::Only(paths) => paths.as_slice(),
        ReadPlan::OwnRoot | ReadPlan::AllExcept(_) => &[],
    };
    let plan = steps.namespaces.as_ref();
    let shown = plan.into_iter().flat_map(|plan| &plan.shown);
    let mirrors = plan.into_iter().flat_map(|plan| &plan.mirrored).map(|mirror| &mirror.at);
    let paths = named.chain(listed).chain(system).chain(shown).chain(mirrors);
    own.chain(paths.map(PathBuf::as_path)).collect()
}

/// Whether the plan shows nothing that contains a path or lies in it.
fn is_apart(steps: &Steps, path: &Path) -> bool {
    !readable(steps).iter().any(|root| root.starts_with(path) || path.starts_with(root))
}

/// Tier B: ringfence's own directory is left out of the root, as denied paths are.
pub(super) fn see_outside(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if !is_absent(&request.steps, &request.canaries.outside) {
        return Ok(&[]);
    }
    if is_seen(request, &request.canaries.outside) {
        return Err(surprise("ringfence's own directory", "can be seen"));
    }
    Ok(&[Name::FsMetadataReads])
}

/// Whether the root of Tier B leaves a path out by name.
fn is_absent(steps: &Steps, path: &Path) -> bool {
    let plan = steps.namespaces.as_ref();
    let absent = plan.into_iter().flat_map(|plan| &plan.absent);
    let denied = plan.into_iter().flat_map(|plan| &plan.denied).map(|denied| &denied.path);
    absent.chain(denied).any(|left_out| path.starts_with(left_out))
}

fn is_seen(request: &LaunchRequest, path: &Path) -> bool {
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    // In a root of its own, the place of something below it that is shown, or what covers it.
    found.is_ok() && !is_of_own_root(request, &found)
}

/// Tries every denied path that exists.
pub(super) fn read_denied(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    for path in &request.canaries.denied {
        // What cannot be seen cannot be opened.
        if request.steps.tier == Tier::B && !is_seen(request, path) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { continue };
        if !is_of_own_root(request, &rustix::fs::fstat(&file)) {
            return Err(surprise(&path.display().to_string(), "can be read"));
        }
    }
    Ok(if request.canaries.denied.is_empty() { &[] } else { &[Name::DenyRead] })
}

/// Tier B: asks for the owner to stay as it is, which changes no more than a time where it is granted.
pub(super) fn change_metadata(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.tier == Tier::A {
        return Ok(&[]);
    }
    let is_writable =
        |path: &Path| request.steps.landlock.read_write.iter().any(|root| path.starts_with(root.path()));
    let shown = Some(Path::new(SHOWN)).filter(|path| !is_writable(path));
    for path in shown.into_iter().chain([request.canaries.outside.as_path()]) {
        let changed = touch(path);
        if changed.is_err() || !is_of_own_root(request, &rustix::fs::stat(path)) {
            must_fail("metadata outside the scope", &changed, REFUSALS)?;
        }
    }
    Ok(&[Name::FsMetadataWrites])
}

/// The kernel looks whether the mount may be written before anything else.
fn touch(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::chownat(CWD, path, None, None, AtFlags::SYMLINK_NOFOLLOW)
}

/// Tries what is kept inside the scope, and a scope that can only be read.
pub(super) fn change_kept(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    let kept = request.steps.kept();
    for path in kept {
        must_fail(&path.display().to_string(), &touch(path), &[Errno::ROFS])?;
    }
    let read_only = request.steps.landlock.read_only.first();
    if let Some(root) = read_only {
        create_in(request, root.path())?;
    }
    Ok(if kept.is_empty() && read_only.is_none() { &[] } else { &[Name::ScopeMetadata] })
}

pub(super) fn use_temporary(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    let steps = &request.steps;
    let is_granted = |path: &Path| readable(steps).iter().any(|root| path.starts_with(root));
    let mut shown: &[Name] = &[];
    for path in TEMPORARY.iter().map(Path::new) {
        match (steps.tier, &steps.namespaces) {
            (Tier::A, _) if steps.landlock.version == 0 || is_granted(path) => continue,
            (Tier::A, _) | (Tier::B, None) => create_in(request, path)?,
            // What the user names there is not the fence's own.
            (Tier::B, Some(_)) if is_named(steps, path) => continue,
            (Tier::B, Some(plan)) if plan.temp_bytes.is_none() => {
                must_fail("temporary files", &touch(path), &[Errno::ROFS, Errno::NOENT])?;
            }
            (Tier::B, Some(_)) if is_of_own_root(request, &rustix::fs::stat(path)) => {}
            (Tier::B, Some(_)) => return Err(surprise(&path.display().to_string(), "is not private")),
        }
        shown = &[Name::TempIsolation];
    }
    Ok(shown)
}

/// Whether a directory itself is mounted from the host, or one above it.
fn is_named(steps: &Steps, path: &Path) -> bool {
    let is_root = |root: &&Path| root.parent().is_none();
    readable(steps).iter().any(|root| !is_root(root) && path.starts_with(root) && !is_own(steps, root))
}

/// The private temporary directories are writable themselves.
fn is_own(steps: &Steps, root: &Path) -> bool {
    steps.landlock.writable_temp.iter().any(|temp| temp == root)
}

/// Opens a device anew, because rules do not hold for what was open before, and asks it for terminal settings.
pub(super) fn control_device(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.landlock.version < 5 {
        return Ok(&[]);
    }
    let Ok(device) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return Ok(&[]);
    };
    let settings = libc::c_long::try_from(libc::TCGETS).unwrap_or_default();
    let asked = sys::attempt(libc::SYS_ioctl, [device.as_raw_fd().into(), settings, 0, 0]);
    expect("control of a device", asked, &[libc::EACCES])?;
    Ok(&[Name::DeviceIoctl])
}

/// Whether a file lies in the tmpfs that is the root of this fence.
fn is_of_own_root(request: &LaunchRequest, found: &rustix::io::Result<Stat>) -> bool {
    let own = rustix::fs::stat("/").map(|stat| stat.st_dev);
    request.steps.tier == Tier::B
        && own != Ok(request.canaries.host.root_device)
        && found.as_ref().is_ok_and(|found| own == Ok(found.st_dev))
}
