//! What a command of the built-in server is told when it does not reach a host: which one, and the option that allows it.
//! The far host answers, so only the fence can refuse, and each refusal has a control that succeeds.

use serde_json::json;
use testkit::{Project, StdioClient, ringfence_binary};
use tokio::process::Command;

use super::http_mode::{FAR_HOST, HOSTS};

/// A session with the built-in server on the near host.
struct Session {
    client: StdioClient,
    _project: Project,
}

impl Session {
    async fn open(flags: &[&str]) -> Self {
        let project = Project::new("network-notes");
        project.write("far_host.py", FAR_HOST);
        project.write("hosts", HOSTS);
        project.write("scope/empty", "");
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args([
            "python3".into(),
            project.join("far_host.py"),
            project.join("hosts"),
            project.join("log"),
        ]);
        command.arg(ringfence_binary()).arg("stdio").args(flags).current_dir(project.join("scope"));
        let (client, _) = StdioClient::open(&mut command, json!({})).await;
        Self { client, _project: project }
    }

    /// Whether the command failed, and the text of its result.
    async fn run(&mut self, command: &str) -> (bool, String) {
        let arguments = json!({"command": command, "wait_seconds": 45});
        let answer = self.client.call("run_terminal_cmd", arguments).await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        (answer["result"]["isError"] == true, text)
    }

    async fn is_told(&mut self, command: &str, words: &[&str]) {
        let (failed, text) = self.run(command).await;
        assert!(failed, "{command}: {text}");
        let note = text.lines().find(|line| line.starts_with("[ringfence: ")).unwrap_or_default();
        for word in words {
            assert!(note.contains(word), "{command} has no {word}: {text}");
        }
    }

    async fn succeeds(&mut self, command: &str) {
        let (failed, text) = self.run(command).await;
        assert!(!failed && text.starts_with("far ") && !text.contains("ringfence"), "{command}: {text}");
    }
}

const CURL: &str = "curl --silent --show-error --fail";
const PYTHON: &str = "from urllib.request import urlopen; print(urlopen";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_the_list_does_not_name_is_named_in_the_result() {
    let mut session = Session::open(&["--net", "http", "--allow-host", "public.example"]).await;
    let refused = ["refused also-public.example", "--allow-host also-public.example"];
    for command in [
        &format!("{CURL} http://also-public.example/x"),
        &format!("{CURL} https://also-public.example/x"),
        "git clone https://also-public.example/x.git",
        &format!("python3 -c '{PYTHON}(\"http://also-public.example/\").read())'"),
        &format!("python3 -c '{PYTHON}(\"https://also-public.example/\").read())'"),
    ] {
        session.is_told(command, &refused).await;
    }
    session.is_told(&format!("{CURL} http://127.0.0.1/"), &["refused 127.0.0.1", "--host-port PORT"]).await;
    // The controls: a host that the list names, and a failure that is not of the network.
    session.succeeds(&format!("{CURL} http://public.example/x")).await;
    let (failed, text) = session.run(&format!("{CURL} http://public.example/x && exit 3")).await;
    assert!(failed && !text.contains("ringfence"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_network_the_host_is_named_in_the_result() {
    let curl = format!("{CURL} http://public.example/x");
    let python = format!("python3 -c '{PYTHON}(\"http://public.example/x\").read().decode())'");
    let mut session = Session::open(&["--net", "none"]).await;
    let refused = ["refused public.example", "`none`", "--net http --allow-host public.example"];
    for command in
        [&curl, &python, "git clone http://public.example/x.git", "git clone git://public.example/x.git"]
    {
        session.is_told(command, &refused).await;
    }
    session.is_told(&format!("{CURL} http://127.0.0.1/"), &["127.0.0.1", "--host-port PORT"]).await;
    let mut open = Session::open(&["--net", "all"]).await;
    for command in [&curl, &python] {
        open.succeeds(command).await;
    }
}
