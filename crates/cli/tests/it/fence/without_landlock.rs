//! A kernel without Landlock: what the root of a fence alone must hold. `strace` takes Landlock away from this one.

use std::os::unix::fs::MetadataExt;
use std::process::Output;

use testkit::{Project, failing_system_call, ringfence_binary};
use tokio::process::Command;

/// Opens a setting of the kernel for writing, and writes nothing.
const OPEN_SETTING: &str = "exec 3>>/proc/sys/kernel/core_pattern && echo opened";

async fn fenced(script: &str) -> Output {
    let project = Project::new("without-landlock");
    let words = failing_system_call("landlock_create_ruleset", "EOPNOTSUPP");
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(ringfence_binary()).args(["run", "--tier", "b", "--net", "none"]);
    command.args(["--allow-degraded", "deny_read", "--scope"]).arg(&project.path);
    command.args(["--", "/bin/sh", "-c", script]).current_dir(&project.path);
    command.output().await.unwrap()
}

/// The finding: root inside a fence is root to the files of `/proc/sys`, whatever its capabilities are.
#[tokio::test]
async fn settings_of_the_kernel_cannot_be_opened_for_writing() {
    let within = fenced(OPEN_SETTING).await;
    assert!(!String::from_utf8_lossy(&within.stdout).contains("opened"), "{within:?}");
    let control = fenced("echo written > file && cat file").await;
    assert_eq!(String::from_utf8_lossy(&control.stdout), "written\n", "{control:?}");
    // Only root may do it outside, and whether this is root shows in what it owns.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let without = Command::new("/bin/sh").args(["-c", OPEN_SETTING]).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&without.stdout).contains("opened"), is_root, "{without:?}");
}
