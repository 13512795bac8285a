//! Packages that `npx` and `uvx` would fetch for every session: installed once, in a fence of their own, and
//! executed by sessions from where they lie, read-only. So nothing is downloaded when a session starts, and no
//! session can alter what another one runs.
//!
//! [`recognise`] tells which commands launch a package; an [`Installer`] makes them an [`Installed`] program.

mod command;
mod failure;
mod fill;
mod recognition;
mod registries;
mod store;
mod tools;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence::{FenceSettings, HostEnvironment, Launcher};

pub(crate) use command::{CacheArguments, run as run_cache};
pub(crate) use failure::PackageFailure;
pub(crate) use recognition::{Package, PackageCommand, recognise};
pub(crate) use registries::is_registry_variable;

use self::fill::Toolchain;
use self::recognition::Tool;
use self::store::{Generation, Marker, PackageDirectory};

/// How long an installed package is used before a newer one is looked for.
pub(crate) const DEFAULT_MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// What `npx -y PACKAGE …` or `uvx PACKAGE …` comes to: an installed program that is executed from where it
/// lies.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Directories that the fence must let it read and execute.
    pub(crate) readable: Vec<PathBuf>,
    /// To be searched before the `PATH`, as the launchers do it: the other programs of the package.
    pub(crate) programs: PathBuf,
    /// The files stay as long as this is held.
    _lease: File,
}

/// Installs packages, and finds those that are installed.
pub(crate) struct Installer<'a> {
    /// What the operator wants of fences: how strong, and with which network.
    pub(crate) settings: &'a FenceSettings,
    pub(crate) host_environment: &'a HostEnvironment,
    pub(crate) launcher: &'a Launcher,
    /// What the operator sets for the installation. Install scripts can read it.
    pub(crate) variables: &'a [(OsString, OsString)],
    /// Told what takes long, and what is not as it was asked for.
    pub(crate) progress: &'a dyn Fn(&str),
}

impl Installer<'_> {
    /// The installed program of a command: one that is not older than `max_age`, or a new one. If a new one
    /// cannot be had, an old one serves. May take minutes, and blocks.
    pub(crate) fn install(
        &self,
        command: &PackageCommand,
        max_age: Duration,
    ) -> Result<Installed, PackageFailure> {
        let package = &command.package;
        let launcher = program_of(package, &self.search_path())?;
        let directory = PackageDirectory::of(self.host_environment, package, &launcher)
            .map_err(PackageFailure::directory("make a directory for packages"))?;
        let toolchain = Toolchain::find(package.tool, &launcher, &self.search_path());
        let identity = toolchain.as_ref().map(Toolchain::identity).unwrap_or_default();
        let is_fresh =
            |generation: &Generation| generation.age() < max_age && generation.marker.toolchain == identity;
        let newest = || directory.newest().filter(is_usable);
        if let Some(found) = newest().filter(is_fresh) {
            return Ok(self.installed(found, &command.arguments));
        }
        let _lock = self.lock(&directory, package)?;
        // Whoever was waited for may have brought it.
        if let Some(found) = newest().filter(is_fresh) {
            return Ok(self.installed(found, &command.arguments));
        }
        let added = toolchain.and_then(|toolchain| self.add(&directory, package, &launcher, &toolchain));
        match (added, newest()) {
            (Ok(found), _) => Ok(self.installed(found, &command.arguments)),
            (Err(failure), Some(old)) => {
                let age = command::duration(old.age());
                (self.progress)(&format!("{}; using the one that is {age} old", failure.in_one_line()));
                Ok(self.installed(old, &command.arguments))
            }
            (Err(failure), None) => {
                // A failure is to leave nothing. If that fails too, the next installation sees to it.
                let _ = directory.clear();
                Err(failure)
            }
        }
    }

    /// Installs a package anew, whatever is there.
    fn refresh(&self, directory: &PackageDirectory, marker: &Marker) -> Result<Generation, PackageFailure> {
        let toolchain = Toolchain::find(marker.package.tool, &marker.launcher, &self.search_path())?;
        let _lock = self.lock(directory, &marker.package)?;
        self.add(directory, &marker.package, &marker.launcher, &toolchain)
    }

    fn lock(
        &self,
        directory: &PackageDirectory,
        package: &Package,
    ) -> Result<store::PackageLock, PackageFailure> {
        let waiting = || {
            (self.progress)(&format!(
                "waiting for another ringfence that installs {}",
                package.specification()
            ));
        };
        directory.lock(waiting).map_err(PackageFailure::directory("lock the package"))
    }

    /// Makes a new generation. Under the lock.
    fn add(
        &self,
        directory: &PackageDirectory,
        package: &Package,
        launcher: &Path,
        toolchain: &Toolchain,
    ) -> Result<Generation, PackageFailure> {
        if fill::is_off(&self.settings.network) {
            return Err(PackageFailure::NoNetwork(package.specification()));
        }
        let place =
            directory.begin().map_err(PackageFailure::directory("make a directory for the package"))?;
        (self.progress)(&format!("installing {} with {}", package.specification(), package.tool.installer()));
        let tree = place.tree();
        let filled = self.fill(package, toolchain, &tree).and_then(|()| tools::entry(package, &tree));
        let entry = match filled {
            Ok(entry) => entry,
            Err(failure) => {
                place.abandon();
                return Err(failure);
            }
        };
        let marker = Marker {
            package: package.clone(),
            launcher: launcher.to_owned(),
            toolchain: toolchain.identity(),
            entry,
            time: store::now(),
            bytes: store::bytes_below(&tree),
        };
        let generation =
            place.complete(&marker).map_err(PackageFailure::directory("finish the installation"))?;
        directory.remove_old();
        Ok(generation)
    }

    fn installed(&self, generation: Generation, arguments: &[OsString]) -> Installed {
        let program = generation.entry();
        let programs = program.parent().unwrap_or(&generation.tree).to_owned();
        let mut readable = vec![generation.tree];
        if generation.marker.package.tool == Tool::Uvx {
            // A long first line hides the interpreter behind a shell, so the script does not always tell.
            let home = self.host_environment.home.as_deref();
            let sensitive = fence::sensitive_paths(home, false);
            let closed: Vec<PathBuf> = home.map(Path::to_owned).into_iter().chain(sensitive).collect();
            let python =
                fence::toolchain::readable_for(&programs.join("python"), &self.search_path(), &closed);
            let is_outside = |prefix: &PathBuf| !prefix.starts_with(&readable[0]);
            let python: Vec<PathBuf> = python.into_iter().filter(is_outside).collect();
            readable.extend(python);
        }
        Installed { program, arguments: arguments.to_vec(), readable, programs, _lease: generation.lease }
    }

    /// The `PATH` of the installation, on which its tools are looked for.
    fn search_path(&self) -> OsString {
        let named = self.variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let parent = || self.host_environment.environment.get(OsStr::new("PATH")).cloned();
        named.or_else(parent).unwrap_or_default()
    }
}

fn program_of(package: &Package, search_path: &OsStr) -> Result<PathBuf, PackageFailure> {
    crate::program::find(OsStr::new(&package.launcher), search_path).map_err(PackageFailure::Program)
}

/// Whether the program is still there, and the Python that it needs.
fn is_usable(generation: &Generation) -> bool {
    let program = generation.entry();
    let has_python = generation.marker.package.tool != Tool::Uvx
        || program.parent().is_some_and(|programs| crate::program::is_executable(&programs.join("python")));
    has_python && crate::program::is_executable(&program)
}
