//! `ringfence doctor`: the protections that this host can enforce, found by trying, and hints for the rest.

use std::process::{Command, Output};

use serde_json::Value;
use testkit::ringfence_binary;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(ringfence_binary()).arg("doctor").args(arguments).output().unwrap()
}

fn report(arguments: &[&str]) -> (i32, Value) {
    let output = doctor(&[arguments, &["--json"]].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), report)
}

#[test]
fn every_protection_can_be_had_here_or_its_residual_is_named() {
    let (code, report) = report(&["--net", "none", "--read-mode", "strict"]);
    assert_eq!((code, &report["can_be_had"]), (0, &Value::Bool(true)), "{report:#}");
    assert_eq!(report["confinement"]["tier"], "b");
    let protections = report["confinement"]["protections"].as_array().unwrap();
    assert_eq!(protections.len(), 29);
    for protection in protections {
        let is_named = protection["note"].as_str().is_some_and(|note| !note.is_empty());
        let is_had = protection["status"] == "enforced" || protection["status"] == "configured";
        assert!(is_had || is_named, "{protection}");
    }
    let verified = |name: &str| {
        let found = protections.iter().find(|protection| protection["name"] == name);
        found.map(|protection| protection["verified"].clone())
    };
    for name in ["fs_write_scope", "tcp", "udp", "signals", "capabilities", "nested_userns"] {
        assert_eq!(verified(name), Some("canary".into()), "{name}");
    }
}

#[test]
fn a_policy_that_cannot_be_had_fails_with_what_to_do() {
    let (code, report) = report(&["--tier", "a", "--allow-root", "--net", "http"]);
    assert_eq!((code, &report["can_be_had"]), (1, &Value::Bool(false)), "{report:#}");
    let missing = &report["missing"][0];
    assert_eq!(missing["what"], "tcp");
    let remedy = missing["remedy"].as_str().unwrap();
    assert!(remedy.contains("deploy/apparmor") && !remedy.contains("sysctl"), "{remedy}");
}

#[test]
fn people_get_a_table() {
    let output = doctor(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in ["Landlock", "user namespaces  available", "fs_write_scope", "not restricted"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "colour is for terminals");
}

#[test]
fn completions_know_the_fence() {
    let output = Command::new(ringfence_binary()).args(["completions", "bash"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("sandboxed_shell") && text.contains("--allow-degraded"));
    assert!(!text.contains("fence-launch"), "the launcher is not a user command");
}
