//! The units for systemd in `deploy`, read by systemd itself where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{ringfence_binary, workspace_dir};

fn units(kind: &str) -> [(String, String); 2] {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd").join(kind);
    ["ringfence.service", "ringfence.socket"].map(|name| {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        (name.to_owned(), text)
    })
}

/// The values of a setting, in order.
fn values<'a>(unit: &'a str, setting: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).collect()
}

#[test]
fn the_units_are_those_of_a_gateway_that_is_told_and_tells() {
    for kind in ["system", "user"] {
        let [(_, service), (_, socket)] = units(kind);
        assert_eq!(values(&service, "Type"), ["notify"], "{kind}");
        assert_eq!(values(&socket, "ListenStream"), ["127.0.0.1:3000"], "{kind}");
        assert!(values(&service, "ExecReload")[0].ends_with("ringfence upgrade $MAINPID"), "{kind}");
        assert_eq!(values(&service, "Requires"), ["ringfence.socket"], "{kind}");
        // Each of these makes namespaces, or a /proc of their own, impossible.
        for setting in [
            "RestrictNamespaces",
            "PrivateUsers",
            "ProtectProc",
            "ProcSubset",
            "ProtectKernelTunables",
            "ProtectKernelLogs",
            "ProtectControlGroups",
            "SystemCallFilter",
            "RootDirectory",
            "MemoryDenyWriteExecute",
        ] {
            assert_eq!(values(&service, setting), [""; 0], "{kind}: {setting}");
        }
    }
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        // What can be read without it, the other test reads.
        return;
    }
    for kind in ["system", "user"] {
        let directory = workspace_dir("units");
        let paths = units(kind).map(|(name, text)| {
            // The program must exist, and it is not installed here.
            let text = text.replace("/usr/local/bin/ringfence", ringfence_binary().to_str().unwrap());
            let text = text.replace("%h/.local/bin/ringfence", ringfence_binary().to_str().unwrap());
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        let verify = |paths: &[PathBuf]| {
            let mut command = Command::new("systemd-analyze");
            command
                .args(["verify", "--man=no", if kind == "user" { "--user" } else { "--system" }])
                .args(paths);
            let output = command.env("XDG_RUNTIME_DIR", directory.path()).output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (is_fine, said) = verify(&paths);
        assert!(is_fine && !said.contains("ringfence."), "{kind}: {said}");
        let broken = std::fs::read_to_string(&paths[0]).unwrap().replace("Type=notify", "Typo=notify");
        std::fs::write(&paths[0], broken).unwrap();
        assert!(verify(&paths).1.contains("Typo"), "the control");
    }
}
