//! Paths of the binaries under test, in the profile directory of the running test.

use std::path::{Path, PathBuf};

/// The gateway under test.
pub fn ringfence_binary() -> PathBuf {
    built_binary("ringfence")
}

/// The stdio MCP server to put behind the gateway.
pub fn fixture_binary() -> PathBuf {
    built_binary("ringfence-fixture")
}

/// The program that tries to escape from the fence.
pub fn attacker_binary() -> PathBuf {
    built_binary("ringfence-attacker")
}

fn built_binary(name: &str) -> PathBuf {
    let path = profile_directory().join(name);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace --bins` in the same profile first",
        path.display()
    );
    path
}

/// `target/<profile>`, for an executable in it or in its `deps` or `examples` directory.
pub(crate) fn profile_directory() -> PathBuf {
    let executable = std::env::current_exe().expect("a running program has a path");
    let directory = executable.parent().expect("an executable lies in a directory");
    let is_below_profile = directory.ends_with("deps") || directory.ends_with("examples");
    let profile = if is_below_profile { directory.parent() } else { Some(directory) };
    profile.map(Path::to_path_buf).expect("cargo's directories have parents")
}
