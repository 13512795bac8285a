//! Installs packages, or finds those that are installed and fresh enough.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence::{FenceSettings, HostEnvironment, Launcher};

use crate::error::PackageError;
use crate::fill::{self, Toolchain};
use crate::inventory::InstalledPackage;
use crate::program::{find_program, is_executable};
use crate::recognition::{Package, PackageCommand, Tool};
use crate::store::{self, Generation, Marker, PackageDirectory, PackageLock};
use crate::tools;

/// The usual age at which an installed package is replaced by a newer one.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The program to execute in place of `npx -y PACKAGE …` or `uvx PACKAGE …`. Its files stay while this is held.
#[derive(Debug)]
pub struct InstalledProgram {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Directories that the fence must make readable and executable.
    pub readable: Vec<PathBuf>,
    /// The directory with the other programs of the package. The launchers search it before the `PATH`.
    pub programs: PathBuf,
    _lease: File,
}

/// Installs packages, each in a fence of its own.
#[allow(missing_debug_implementations, reason = "it borrows a closure")]
pub struct Installer<'a> {
    /// The operator's fence settings. The installation takes its strength and network from them.
    pub settings: &'a FenceSettings,
    pub host_environment: &'a HostEnvironment,
    pub launcher: &'a Launcher,
    /// Variables for the installation. Install scripts can read them.
    pub variables: &'a [(OsString, OsString)],
    /// Called with a line for the user when something takes long or differs from the request.
    pub progress: &'a dyn Fn(&str),
}

impl Installer<'_> {
    /// Returns the program of a package that is at most `max_age` old, and installs the package if there is none. Falls
    /// back to an older one if that fails. Blocks, possibly for minutes.
    pub fn install(
        &self,
        command: &PackageCommand,
        max_age: Duration,
    ) -> Result<InstalledProgram, PackageError> {
        let package = &command.package;
        let launcher = find_program(OsStr::new(&package.launcher), &self.search_path())?;
        let directory = PackageDirectory::of(self.host_environment, package, &launcher)
            .map_err(PackageError::directory("make a directory for packages"))?;
        let toolchain = Toolchain::find(package.tool, &launcher, &self.search_path());
        let identity = toolchain.as_ref().map(Toolchain::identity).unwrap_or_default();
        let is_fresh =
            |generation: &Generation| generation.age() < max_age && generation.marker.toolchain == identity;
        let newest = || directory.newest().filter(is_usable);
        if let Some(found) = newest().filter(is_fresh) {
            return Ok(self.installed(found, &command.arguments));
        }
        let _lock = self.lock(&directory, package)?;
        // Another process may have installed it while this one waited for the lock.
        if let Some(found) = newest().filter(is_fresh) {
            return Ok(self.installed(found, &command.arguments));
        }
        let added = toolchain.and_then(|toolchain| self.add(&directory, package, &launcher, &toolchain));
        match (added, newest()) {
            (Ok(found), _) => Ok(self.installed(found, &command.arguments)),
            (Err(error), Some(old)) => {
                let age = old.age_in_words();
                (self.progress)(&format!("{}; using the one that is {age} old", error.in_one_line()));
                Ok(self.installed(old, &command.arguments))
            }
            (Err(error), None) => {
                // Best effort: the next installation removes what stays.
                let _ = directory.clear();
                Err(error)
            }
        }
    }

    /// Installs a package anew, however old the installed one is.
    pub fn refresh(&self, old: &InstalledPackage) -> Result<InstalledPackage, PackageError> {
        let (directory, marker) = (&old.directory, &old.generation.marker);
        let toolchain = Toolchain::find(marker.package.tool, &marker.launcher, &self.search_path())?;
        let _lock = self.lock(directory, &marker.package)?;
        let generation = self.add(directory, &marker.package, &marker.launcher, &toolchain)?;
        Ok(InstalledPackage { directory: directory.clone(), generation })
    }

    fn lock(&self, directory: &PackageDirectory, package: &Package) -> Result<PackageLock, PackageError> {
        let locked = directory.lock(&package.specification(), self.progress);
        locked.map_err(PackageError::directory("lock the package"))
    }

    /// Installs a new generation. Call it under the lock.
    fn add(
        &self,
        directory: &PackageDirectory,
        package: &Package,
        launcher: &Path,
        toolchain: &Toolchain,
    ) -> Result<Generation, PackageError> {
        if fill::is_off(&self.settings.network) {
            return Err(PackageError::NoNetwork(package.specification()));
        }
        let place = directory.begin().map_err(PackageError::directory("make a directory for the package"))?;
        (self.progress)(&format!("installing {} with {}", package.specification(), package.tool.installer()));
        let tree = place.tree();
        let filled = self.fill(package, toolchain, &tree).and_then(|()| tools::entry(package, &tree));
        let entry = match filled {
            Ok(entry) => entry,
            Err(error) => {
                place.abandon();
                return Err(error);
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
            place.complete(&marker).map_err(PackageError::directory("finish the installation"))?;
        directory.remove_old();
        Ok(generation)
    }

    fn installed(&self, generation: Generation, arguments: &[OsString]) -> InstalledProgram {
        let program = generation.entry();
        let programs = program.parent().unwrap_or(&generation.tree).to_owned();
        let mut readable = vec![generation.tree];
        if generation.marker.package.tool == Tool::Uvx {
            // The script does not always name its interpreter: a path too long for `#!` goes through a shell.
            let python = self.host_environment.needed_by(&programs.join("python"), &self.search_path());
            let is_outside = |prefix: &PathBuf| !prefix.starts_with(&readable[0]);
            let python: Vec<PathBuf> = python.into_iter().filter(is_outside).collect();
            readable.extend(python);
        }
        InstalledProgram {
            program,
            arguments: arguments.to_vec(),
            readable,
            programs,
            _lease: generation.lease,
        }
    }

    /// The `PATH` of the installation, on which its tools are found.
    fn search_path(&self) -> OsString {
        let named = self.variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let parent = || self.host_environment.environment.get(OsStr::new("PATH")).cloned();
        named.or_else(parent).unwrap_or_default()
    }
}

/// Whether the program and the Python that it needs still exist.
fn is_usable(generation: &Generation) -> bool {
    let program = generation.entry();
    let has_python = generation.marker.package.tool != Tool::Uvx
        || program.parent().is_some_and(|programs| is_executable(&programs.join("python")));
    has_python && is_executable(&program)
}
