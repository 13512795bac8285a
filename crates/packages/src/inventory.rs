//! The packages that are installed: lists them, and removes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fence::HostEnvironment;

use crate::error::PackageError;
use crate::recognition::Package;
use crate::store::{Generation, PackageDirectory, Pinned};

/// The newest complete generation of a package. Its files stay while this is held.
#[derive(Debug)]
pub struct InstalledPackage {
    pub(crate) directory: PackageDirectory,
    pub(crate) generation: Generation,
}

impl InstalledPackage {
    pub fn package(&self) -> &Package {
        &self.generation.marker.package
    }

    pub fn program(&self) -> PathBuf {
        self.generation.entry()
    }

    /// The directory that holds all of its files.
    pub fn tree(&self) -> &Path {
        &self.generation.tree
    }

    pub fn age(&self) -> Duration {
        self.generation.age()
    }

    /// For people: `3 days`.
    pub fn age_in_words(&self) -> String {
        self.generation.age_in_words()
    }

    pub fn bytes(&self) -> u64 {
        self.generation.marker.bytes
    }

    /// Seconds since 1970 at which it was installed.
    pub fn time(&self) -> u64 {
        self.generation.marker.time
    }

    /// Its version and hashes. `None` if a ringfence without locks installed it.
    pub fn pinned(&self) -> Option<&Pinned> {
        self.generation.marker.pinned.as_ref()
    }
}

/// What [`clear`] did to one package.
#[derive(Debug)]
pub struct ClearedPackage {
    pub name: String,
    /// False if a running program still uses some of it.
    pub is_removed: bool,
}

/// Lists the packages with these names, or all if no name is given.
pub fn installed(
    host_environment: &HostEnvironment,
    names: &[String],
) -> Result<Vec<InstalledPackage>, PackageError> {
    let found: Vec<InstalledPackage> = directories(host_environment)?
        .into_iter()
        .filter_map(|directory| {
            let generation = directory.newest()?;
            Some(InstalledPackage { directory, generation })
        })
        .collect();
    if let Some(unknown) = names.iter().find(|name| !found.iter().any(|found| found.package().is_named(name)))
    {
        return Err(PackageError::Unknown(unknown.clone()));
    }
    let is_chosen = |found: &InstalledPackage| {
        names.is_empty() || names.iter().any(|name| found.package().is_named(name))
    };
    Ok(found.into_iter().filter(is_chosen).collect())
}

/// Removes the packages with these names, or all if no name is given, unfinished installations included.
pub fn clear(
    host_environment: &HostEnvironment,
    names: &[String],
    progress: &dyn Fn(&str),
) -> Result<Vec<ClearedPackage>, PackageError> {
    let chosen: Vec<(PackageDirectory, Option<String>)> = if names.is_empty() {
        let name = |directory: &PackageDirectory| {
            directory.newest().map(|newest| newest.marker.package.specification())
        };
        directories(host_environment)?
            .into_iter()
            .map(|directory| (directory.clone(), name(&directory)))
            .collect()
    } else {
        let chosen = installed(host_environment, names)?.into_iter();
        chosen.map(|found| (found.directory, Some(found.generation.marker.package.specification()))).collect()
    };
    let mut cleared = Vec::new();
    for (directory, name) in chosen {
        let name = name.unwrap_or_else(|| "an unfinished installation".to_owned());
        let _lock = directory.lock(&name, progress).map_err(PackageError::directory("lock the package"))?;
        let is_removed = directory.clear().map_err(PackageError::directory("remove the package"))?;
        if !is_removed {
            progress(&format!("{name} is in use, so some of it stays"));
        }
        cleared.push(ClearedPackage { name, is_removed });
    }
    Ok(cleared)
}

fn directories(host_environment: &HostEnvironment) -> Result<Vec<PackageDirectory>, PackageError> {
    PackageDirectory::all(host_environment).map_err(PackageError::directory("read the packages"))
}
