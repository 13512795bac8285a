//! Packages that `npx` and `uvx` would fetch for every session, installed once instead.
//!
//! [`recognise`] finds out whether a command launches a package. An [`Installer`] installs that package in a fence of
//! its own and returns an [`InstalledProgram`], which sessions execute read-only from where it lies. So no session
//! downloads anything when it starts, and none can alter what another one runs. Each package is pinned: its lock names
//! the version and the hashes of everything that belongs to it, and only [`Installer::refresh`] makes another lock.
//! [`installed`] and [`clear`] list and remove packages.
//!
//! ```no_run
//! use std::ffi::OsString;
//! # fn example(installer: &packages::Installer<'_>) -> Result<(), packages::PackageError> {
//! let command = ["npx", "-y", "@scope/server"].map(OsString::from);
//! if let Some(command) = packages::recognise(&command) {
//!     let program = installer.install(&command)?;
//!     println!("{}", program.program.display());
//! }
//! # Ok(())
//! # }
//! ```

mod changes;
mod error;
mod fill;
mod installer;
mod inventory;
mod pins;
mod program;
mod recognition;
mod registries;
mod store;
mod tools;

pub use changes::{AlteredPackage, Changes, VersionChange};
pub use error::PackageError;
pub use installer::{InstalledProgram, Installer, RefreshChoice, RefreshOutcome, Refreshed};
pub use inventory::{ClearedPackage, InstalledPackage, clear, installed};
pub use program::{ProgramError, find_program};
pub use recognition::{Package, PackageCommand, recognise};
pub use registries::is_registry_variable;
pub use store::Pinned;
