//! What `connect` trusts on the client's machine is in no scope there: its configuration, its log, and the files by
//! which it and its gateway know each other.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::NEWEST;

use super::{Ide, IdeBuilder, Site};
use crate::authentication::{write_certificate, write_private};

const TRUSTED: &[(&str, &str)] = &[
    ("--config", "servers.yaml"),
    ("--audit-log", "audit.jsonl"),
    ("--token-file", "token"),
    ("--session-file", "session.json"),
    ("--ca", "cert.pem"),
];

fn configuration(fence: &Value) -> String {
    json!({"servers": {"filesystem": {"executionContext": "local", "fence": fence}}}).to_string()
}

/// Writes what the options of [`TRUSTED`] name into a directory.
fn write_trusted(directory: &Path) {
    std::fs::write(directory.join("servers.yaml"), configuration(&json!({}))).unwrap();
    write_private(&directory.join("token"), "a-token-0123456789");
    write_certificate(directory);
}

/// An IDE with this option, and with a configuration outside the project in any case.
fn with_option(site: &Site, url: &str, option: &str, file: PathBuf) -> IdeBuilder {
    match option {
        "--config" => site.ide_with(url, file),
        _ => site.ide(url).flag(option).flag(file),
    }
}

/// Sends `initialize` as a client that names no directory, and returns the answer.
async fn initialize(ide: &mut Ide) -> Value {
    let client = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": client});
    ide.request("initialize", params).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_with_what_connect_trusts_is_no_scope() {
    let site = Site::new("connect-trusted");
    let gateway = site.gateway().start().await;
    let elsewhere = site.directory.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for directory in [&elsewhere, &site.project()] {
        write_trusted(directory);
    }
    for (option, file) in TRUSTED {
        let mut ide = with_option(&site, gateway.url(), option, elsewhere.join(file)).open().await;
        let arguments = json!({"path": "written", "content": *option});
        ide.call_until_it_works("filesystem_write_file", &arguments).await;
        let written = std::fs::read_to_string(site.project().join("written")).unwrap();
        assert!(written.starts_with(option), "the control: {written}");
        let mut ide = with_option(&site, gateway.url(), option, site.project().join(file)).start();
        let answer = initialize(&mut ide).await;
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{option}: {answer}"));
        assert!(message.contains("not apart") && message.contains(file), "{option}: {message}");
    }
    let log = site.connect_log();
    assert!(log.contains("clients that name no directory are refused"), "{log}");
    assert!(log.contains("hint: ") && log.contains("move the file out of the directory"), "{log}");
}

/// The finding: a local server adds `unfenced: true` to the configuration with which `connect` starts the next time.
#[tokio::test(flavor = "multi_thread")]
async fn no_local_server_takes_its_own_fence_away() {
    let site = Site::new("connect-trusted-configuration");
    let gateway = site.gateway().start().await;
    let weaker = configuration(&json!({"unfenced": true}));
    for place in [site.project(), site.directory.join("outside").canonicalize().unwrap()] {
        let file = place.join("servers.yaml");
        std::fs::write(&file, configuration(&json!({}))).unwrap();
        let mut ide = site.ide_with(gateway.url(), file.clone()).start();
        let is_open = initialize(&mut ide).await.get("error").is_none();
        assert_eq!(is_open, place != site.project(), "the control: elsewhere the project can be worked in");
        let mut write = async |path: &Path| {
            let command = format!("cat > '{}' <<'END'\n{weaker}\nEND", path.display());
            ide.call("filesystem_run_terminal_cmd", json!({"command": command})).await
        };
        write(&file).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), configuration(&json!({})));
        if is_open {
            let told = write(&site.project().join("other.yaml")).await;
            let other = std::fs::read_to_string(site.project().join("other.yaml"));
            assert!(other.is_ok_and(|text| text.contains("unfenced")), "the control: {told}");
        }
    }
}
