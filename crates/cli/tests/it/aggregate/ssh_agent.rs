//! `sshAgent: true` lends a server the ssh-agent of the operator: it can use the keys, and read none of them.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::{RawClient, WorkspaceDir, wait_until, workspace_dir};

use super::{Site, open, reason};

/// An agent with one key, whose file lies outside of every workspace.
struct Agent {
    directory: WorkspaceDir,
    process: std::process::Child,
}

impl Agent {
    async fn start() -> Self {
        let directory = workspace_dir("agent");
        let socket = directory.join("agent.sock");
        let process =
            Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        let agent = Self { directory, process };
        wait_until("the agent listens", async || socket.exists()).await;
        let key = agent.directory.join("key");
        let make =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        assert!(make.unwrap().success());
        let add = Command::new("ssh-add").arg("-q").arg(&key).env("SSH_AUTH_SOCK", &socket).status();
        assert!(add.unwrap().success());
        agent
    }

    fn fingerprint(&self) -> String {
        let output = Command::new("ssh-keygen").arg("-lf").arg(self.directory.join("key")).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn run(client: &RawClient, server: &str, command: &str) -> String {
    let arguments = json!({"command": command, "is_background": false});
    client.call_tool(&format!("{server}_run_terminal_cmd"), arguments).await.to_string()
}

fn site(name: &str) -> Site {
    let shell = |fence| json!({"command": ["ringfence", "workspace"], "fence": fence});
    let servers = json!({"lent": shell(json!({"sshAgent": true})), "plain": shell(json!({}))});
    Site::new(name, &json!({ "servers": servers }))
}

#[tokio::test]
async fn a_server_signs_with_the_agent_and_reads_no_key() {
    let (agent, site) = (Agent::start().await, site("lent-agent"));
    let socket = agent.directory.join("agent.sock");
    let gateway = site.builder().env("SSH_AUTH_SOCK", &socket).start().await;
    let client = open(&gateway).await;
    let fingerprint = agent.fingerprint();
    let listed = run(&client, "lent", "ssh-add -l").await;
    assert!(listed.contains(&fingerprint), "{listed}");
    let public = std::fs::read_to_string(agent.directory.join("key.pub")).unwrap();
    std::fs::write(site.project().join("key.pub"), public).unwrap();
    let sign = "echo text > text && ssh-keygen -q -Y sign -f key.pub -n file text && cat text.sig";
    let signed = run(&client, "lent", sign).await;
    assert!(signed.contains("BEGIN SSH SIGNATURE"), "{signed}");

    let key = agent.directory.join("key");
    let read =
        run(&client, "lent", &format!("cat {} ; ls {}", key.display(), agent.directory.path().display()))
            .await;
    assert!(!read.contains("PRIVATE KEY"), "{read}");
    assert!(Path::new(&key).is_file(), "the control: it is there");
    let without = run(&client, "plain", &format!("SSH_AUTH_SOCK={} ssh-add -l", socket.display())).await;
    assert!(!without.contains(&fingerprint), "a server that was lent nothing: {without}");
}

#[tokio::test]
async fn without_an_agent_the_server_says_so() {
    let site = site("no-agent");
    let gateway = site.builder().env_remove("SSH_AUTH_SOCK").start().await;
    let client = open(&gateway).await;
    let why = reason(&client, "lent").await.unwrap();
    assert!(why.contains("SSH_AUTH_SOCK"), "{why}");
    assert_eq!(reason(&client, "plain").await, None, "the control");
}
