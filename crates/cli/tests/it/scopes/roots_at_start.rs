//! Servers that ask for their roots when they start, such as the reference file server: the first call of a session
//! must not overtake the answer.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::{Gateway, RawClient, node_binary, parts_dir};

use super::{NEWEST, Project, roots, text_of, with_roots};

/// Starts a gateway with the reference file server and these directories as its arguments.
async fn file_server(directories: &[&Path]) -> Gateway {
    let script = parts_dir().join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let mut command: Vec<OsString> = vec![node_binary().into(), script.into()];
    command.extend(directories.iter().map(|directory| directory.as_os_str().to_owned()));
    Gateway::builder().command(command).start().await
}

/// Opens a session whose very first call writes a file into its root.
async fn write_first(gateway: &Gateway, root: &Path, name: &str) -> RawClient {
    let mut client = gateway.client();
    client.open(with_roots(), NEWEST).await;
    let arguments = json!({"path": root.join(name), "content": "text"});
    let answer = client.call_tool_answering("write_file", arguments, |_| Ok(roots(&[root]))).await.response;
    text_of(&answer);
    assert!(root.join(name).exists(), "{answer}");
    client
}

#[tokio::test]
async fn the_first_call_finds_a_server_that_knows_its_roots() {
    let project = Project::new("first-call");
    let parent = project.path.parent().unwrap();
    for directories in [&[][..], &[Path::new("/")], &[parent]] {
        let gateway = file_server(directories).await;
        for session in 0..3 {
            write_first(&gateway, &project.path, &format!("written-{}-{session}", directories.len())).await;
        }
    }
}

#[tokio::test]
async fn the_first_call_after_a_restart_finds_a_server_that_knows_its_roots() {
    let project = Project::new("first-call-after-restart");
    let gateway = file_server(&[Path::new("/")]).await;
    let client = write_first(&gateway, &project.path, "before").await;
    for pid in gateway.descendants() {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        // Killing one process may already have ended the others.
        let _ = kill_process(pid, Signal::KILL);
    }
    gateway.wait_for_log("while this call was running").await;
    let arguments = json!({"path": project.path.join("after"), "content": "text"});
    text_of(&client.call_tool("write_file", arguments).await);
    assert!(project.path.join("after").exists());
}
