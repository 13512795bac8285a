//! Installs packages, or finds those that are installed. What is installed stays at its version, until a refresh.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fence::{FenceSettings, HostEnvironment, Launcher};

use crate::changes::Changes;
use crate::error::PackageError;
use crate::fill::{self, Installation, Toolchain};
use crate::inventory::InstalledPackage;
use crate::pins::Pins;
use crate::program::{find_program, is_executable};
use crate::recognition::{Package, PackageCommand, Tool};
use crate::store::{self, Generation, Marker, PackageDirectory, PackageLock, Pinned, Unfinished};
use crate::tools;

/// How many packages a warning names.
const MAX_LISTED: usize = 10;

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
    /// Whether to look at all files of an installed package, not only at its program, before it is used again.
    pub checks_all_files: bool,
    /// Called with a line for the user when something takes long or differs from the request.
    pub progress: &'a (dyn Fn(&str) + Sync),
    /// Called with a line for the user about something that may have to be acted on.
    pub warning: &'a dyn Fn(&str),
}

/// How a package is refreshed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefreshChoice {
    /// Only find out what would change.
    pub dry_run: bool,
    /// Install also files that were replaced under the same version.
    pub accept_changed: bool,
}

/// What a refresh found and did.
#[derive(Debug)]
pub struct Refreshed {
    /// The version that the registry offers now.
    pub version: String,
    /// `None` if nothing is known of what was installed before.
    pub changes: Option<Changes>,
    pub outcome: RefreshOutcome,
}

#[derive(Debug)]
pub enum RefreshOutcome {
    /// The installed package is what the registry offers.
    Unchanged,
    /// A dry run: a refresh would install something.
    Outdated,
    /// Files were replaced under the same version, and that was not accepted.
    Refused,
    Installed(Box<InstalledPackage>),
}

/// Where a package is installed, and with what.
struct Site<'a> {
    package: &'a Package,
    launcher: &'a Path,
    directory: &'a PackageDirectory,
    toolchain: &'a Toolchain,
}

impl Installer<'_> {
    /// Returns the program of a package, and installs the package if there is none that works: with the versions and
    /// hashes of its lock, if there is one. Blocks, possibly for minutes.
    pub fn install(&self, command: &PackageCommand) -> Result<InstalledProgram, PackageError> {
        let package = &command.package;
        let launcher = find_program(OsStr::new(&package.launcher), &self.search_path())?;
        let directory = self.directory(package, &launcher)?;
        let toolchain = Toolchain::find(package.tool, &launcher, &self.search_path());
        let identity = toolchain.as_ref().map(Toolchain::identity).unwrap_or_default();
        let newest = || directory.newest().filter(is_usable);
        let is_fit = |found: &Generation| {
            found.marker.toolchain == identity && (!self.checks_all_files || found.is_whole())
        };
        if let Some(found) = newest().filter(is_fit) {
            return Ok(self.installed(found, &command.arguments));
        }
        let _lock = self.lock(&directory, package)?;
        // Another process may have installed it while this one waited for the lock.
        if let Some(found) = newest().filter(is_fit) {
            return Ok(self.installed(found, &command.arguments));
        }
        let added = toolchain.and_then(|toolchain| {
            let site = Site { package, launcher: &launcher, directory: &directory, toolchain: &toolchain };
            self.add(&site, self.known_pins(&site)?)
        });
        match (added, newest().filter(Generation::is_whole)) {
            (Ok(found), _) => Ok(self.installed(found, &command.arguments)),
            (Err(error), Some(old)) => {
                let age = old.age_in_words();
                (self.warning)(&format!("{}; using the one that is {age} old", error.in_one_line()));
                Ok(self.installed(old, &command.arguments))
            }
            (Err(error), None) => {
                // A lock stays, so that the next attempt installs the same.
                if directory.newest().is_none_or(|newest| newest.marker.pinned.is_none()) {
                    // Best effort: the next installation removes what stays.
                    let _ = directory.clear();
                }
                Err(error)
            }
        }
    }

    /// Finds out what the registry offers now, and installs it if it differs from what is installed.
    pub fn refresh(&self, old: &InstalledPackage, choice: RefreshChoice) -> Result<Refreshed, PackageError> {
        let (directory, marker) = (&old.directory, &old.generation.marker);
        let package = &marker.package;
        let toolchain = Toolchain::find(package.tool, &marker.launcher, &self.search_path())?;
        let site = Site { package, launcher: &marker.launcher, directory, toolchain: &toolchain };
        let _lock = self.lock(directory, package)?;
        let unfinished = self.begin_generation(&site)?;
        let tree = unfinished.tree();
        let installation = self.begin(package, &toolchain, &tree)?;
        let pins = installation.resolve()?;
        let top = pins.top(package).map_err(|error| PackageError::not_pinned(package, &error))?;
        let version = top.version.clone();
        // A lock that cannot be read is replaced, like one that does not exist.
        let before = old.generation.pins().ok().flatten();
        let changes = before.map(|before| Changes::between(&before, &pins));
        let is_changed = changes.as_ref().is_none_or(|changes| !changes.is_empty());
        let is_altered = changes.as_ref().is_some_and(|changes| !changes.altered.is_empty());
        let is_fit = || {
            let identity = toolchain.identity();
            is_usable(&old.generation) && marker.toolchain == identity && old.generation.is_whole()
        };
        let outcome = if !is_changed && is_fit() {
            RefreshOutcome::Unchanged
        } else if choice.dry_run {
            RefreshOutcome::Outdated
        } else if is_altered && !choice.accept_changed {
            RefreshOutcome::Refused
        } else {
            let generation = self.finish(&site, &installation, unfinished, &pins)?;
            RefreshOutcome::Installed(Box::new(InstalledPackage { directory: directory.clone(), generation }))
        };
        Ok(Refreshed { version, changes, outcome })
    }

    fn directory(&self, package: &Package, launcher: &Path) -> Result<PackageDirectory, PackageError> {
        PackageDirectory::of(self.host_environment, package, launcher)
            .map_err(PackageError::directory("make a directory for packages"))
    }

    /// The lock that a package was installed from before. Failing that, the one with or without install scripts: to
    /// allow or forbid them changes no version.
    fn known_pins(&self, site: &Site<'_>) -> Result<Option<Pins>, PackageError> {
        let sibling = self.directory(&site.package.sibling(), site.launcher)?;
        let found = [site.directory, &sibling]
            .into_iter()
            .find_map(|directory| directory.newest().filter(|generation| generation.marker.pinned.is_some()));
        let pins = found.map(|generation| generation.pins()).transpose();
        pins.map(Option::flatten).map_err(|error| PackageError::lock(site.package, &error))
    }

    fn lock(&self, directory: &PackageDirectory, package: &Package) -> Result<PackageLock, PackageError> {
        let locked = directory.lock(&package.specification(), self.progress);
        locked.map_err(PackageError::directory("lock the package"))
    }

    /// Installs a new generation: these packages, or what the registry offers now. Call it under the lock.
    fn add(&self, site: &Site<'_>, pins: Option<Pins>) -> Result<Generation, PackageError> {
        let unfinished = self.begin_generation(site)?;
        let (name, tool) = (site.package.specification(), site.package.tool.installer());
        let from = if pins.is_some() { " from its lock" } else { "" };
        (self.progress)(&format!("installing {name} with {tool}{from}"));
        let (tree, began) = (unfinished.tree(), Instant::now());
        let installation = self.begin(site.package, site.toolchain, &tree)?;
        let pins = pins.map_or_else(|| installation.resolve(), Ok)?;
        let generation = self.finish(site, &installation, unfinished, &pins)?;
        (self.progress)(&format!(
            "installed {name} in {:.0} s: {} packages, {}",
            began.elapsed().as_secs_f32(),
            pins.packages().len(),
            store::size_in_words(generation.marker.bytes)
        ));
        Ok(generation)
    }

    fn begin_generation(&self, site: &Site<'_>) -> Result<Unfinished, PackageError> {
        if fill::is_off(&self.settings.network) {
            return Err(PackageError::NoNetwork(site.package.specification()));
        }
        site.directory.begin().map_err(PackageError::directory("make a directory for the package"))
    }

    /// Installs these packages into a generation and completes it.
    fn finish(
        &self,
        site: &Site<'_>,
        installation: &Installation<'_>,
        unfinished: Unfinished,
        pins: &Pins,
    ) -> Result<Generation, PackageError> {
        let package = site.package;
        let top = pins.top(package).map_err(|error| PackageError::not_pinned(package, &error))?;
        // Asked for first: code of packages could change the answer.
        let installer = installation.version()?;
        let pinned = Pinned {
            version: top.version.clone(),
            integrity: top.hashes.iter().cloned().collect(),
            packages: pins.packages().len(),
            install_scripts_ran: installation.install(pins)?,
            install_scripts: pins.with_install_scripts().into_iter().map(str::to_owned).collect(),
            installer,
        };
        let tree = unfinished.tree();
        let marker = Marker {
            package: package.clone(),
            launcher: site.launcher.to_owned(),
            toolchain: site.toolchain.identity(),
            entry: tools::entry(package, &tree)?,
            time: store::now(),
            bytes: store::bytes_below(&tree),
            pinned: Some(pinned),
        };
        let completed = unfinished.complete(pins, &marker);
        let generation = completed.map_err(PackageError::directory("finish the installation"))?;
        site.directory.remove_old();
        self.warn_of_scripts(&generation.marker);
        Ok(generation)
    }

    fn warn_of_scripts(&self, marker: &Marker) {
        let scripts = marker.pinned.as_ref().map(|pinned| &pinned.install_scripts[..]).unwrap_or_default();
        if scripts.is_empty() || marker.package.install_scripts {
            return;
        }
        (self.warning)(&format!(
            "{} is installed, but the install scripts of {} did not run; if it does not work without them, allow them \
             with --allow-install-scripts, or with `allowInstallScripts: true` for the server in the configuration",
            marker.package.specification(),
            listed(scripts)
        ));
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

/// For people: the first few names, and how many more there are.
fn listed(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
    let rest = names.len() - shown.len();
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    format!("{}{rest}", shown.join(", "))
}

/// Whether the program and the Python that it needs still exist.
fn is_usable(generation: &Generation) -> bool {
    let program = generation.entry();
    let has_python = generation.marker.package.tool != Tool::Uvx
        || program.parent().is_some_and(|programs| is_executable(&programs.join("python")));
    has_python && is_executable(&program)
}
