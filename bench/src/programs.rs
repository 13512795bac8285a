//! Building and finding the programs under measurement.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, WhileDoing};

/// A directory with the binaries, to skip building them while working on the benchmark.
const BINARIES_OVERRIDE: &str = "RINGFENCE_BENCH_BIN_DIR";

#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) ringfence: PathBuf,
    /// Another build of ringfence to compare with.
    pub(crate) before: Option<PathBuf>,
    pub(crate) fixture: PathBuf,
    pub(crate) bench: PathBuf,
    /// `target/bench`: results, logs and installed peers.
    pub(crate) work_directory: PathBuf,
    /// The parent directory of the built-in server's scopes.
    pub(crate) scopes: PathBuf,
}

impl Programs {
    pub(crate) fn peers_directory(&self) -> PathBuf {
        self.work_directory.join("peers")
    }

    /// An empty directory that sessions work in.
    pub(crate) fn workspace(&self) -> Result<PathBuf, Error> {
        let workspace = self.work_directory.join("workspace");
        std::fs::create_dir_all(&workspace).while_doing("creating a workspace")?;
        Ok(workspace)
    }

    /// Where scripts/install-test-parts puts official servers.
    pub(crate) fn parts_directory(&self) -> PathBuf {
        self.work_directory.with_file_name("parts")
    }

    pub(crate) fn log_file(&self, leg_name: &str) -> PathBuf {
        self.work_directory.join("logs").join(format!("{leg_name}.log"))
    }
}

/// Builds ringfence and the fixture into the same target directory, unless the environment names another one.
pub(crate) fn build_and_locate() -> Result<Programs, Error> {
    let bench = std::env::current_exe().while_doing("finding this program")?;
    let target_directory = bench
        .parent()
        .and_then(Path::parent)
        .ok_or_else(|| Error::new("this program is not inside a target directory"))?
        .to_owned();
    let binaries = match std::env::var_os(BINARIES_OVERRIDE) {
        Some(directory) => PathBuf::from(directory),
        None => build_release(&target_directory)?,
    };
    let work_directory = target_directory.join("bench");
    std::fs::create_dir_all(work_directory.join("logs")).while_doing("creating target/bench/logs")?;
    let fixture = binaries.join("ringfence-fixture");
    if !fixture.is_file() {
        return Err(Error::new(format!("there is no {}", fixture.display())));
    }
    let scopes = work_directory.join("workspace-scopes");
    Ok(Programs {
        ringfence: binaries.join("ringfence"),
        before: None,
        fixture,
        bench,
        work_directory,
        scopes,
    })
}

fn build_release(target_directory: &Path) -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "-p", "ringfence", "-p", "ringfence-testkit"])
        .arg("--target-dir")
        .arg(target_directory)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .while_doing("running cargo build")?;
    if status.success() {
        return Ok(target_directory.join("release"));
    }
    Err(Error::new("cargo build failed"))
}
