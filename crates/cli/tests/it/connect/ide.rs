//! An IDE: the test speaks MCP over the stdin and stdout of `ringfence connect`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{NEWEST, PipedProcess, ringfence_binary, text_of};
use tokio::process::Command;

pub(super) struct IdeBuilder {
    url: String,
    directory: PathBuf,
    flags: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    log: PathBuf,
    wrapper: Vec<OsString>,
}

impl IdeBuilder {
    pub(super) fn new(url: &str, directory: PathBuf) -> Self {
        let log = PathBuf::from("/dev/null");
        Self {
            url: url.to_owned(),
            directory,
            flags: Vec::new(),
            variables: Vec::new(),
            log,
            wrapper: Vec::new(),
        }
    }

    pub(super) fn flag(mut self, flag: impl AsRef<OsStr>) -> Self {
        self.flags.push(flag.as_ref().to_owned());
        self
    }

    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Appends its standard error to this file.
    pub(super) fn log(mut self, path: PathBuf) -> Self {
        self.log = path;
        self
    }

    /// Starts it through a wrapper that finally executes its arguments.
    pub(super) fn wrapped_in(mut self, wrapper: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.wrapper = wrapper.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    pub(super) fn start(self) -> Ide {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"log=$1; shift; exec "$@" 2>>"$log""#, "sh"])
            .arg(&self.log)
            .args(&self.wrapper)
            .arg(ringfence_binary())
            .args(["connect", &self.url])
            .args(&self.flags)
            .env_remove("RINGFENCE_TOKEN")
            .envs(self.variables)
            .current_dir(&self.directory);
        Ide { process: PipedProcess::start(&mut command), heard: VecDeque::new(), last_id: 0 }
    }

    /// Starts it and initializes the session.
    pub(super) async fn open(self) -> Ide {
        let mut ide = self.start();
        ide.initialize().await;
        ide
    }
}

pub(super) struct Ide {
    pub(super) process: PipedProcess,
    /// Messages that arrived while waiting for another one.
    heard: VecDeque<Value>,
    last_id: u64,
}

impl Ide {
    pub(super) async fn initialize(&mut self) {
        let client = json!({"name": "test", "version": "0"});
        let capabilities = json!({"sampling": {}, "elicitation": {}});
        let params = json!({"protocolVersion": NEWEST, "capabilities": capabilities, "clientInfo": client});
        let answer = self.request("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], NEWEST, "{answer}");
        self.process.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.child.id().unwrap()
    }

    /// Waits for a message that satisfies `wanted`; keeps all others for later.
    pub(super) async fn hear(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.heard.iter().position(&wanted) {
            return self.heard.remove(place).unwrap();
        }
        loop {
            let message = self.process.read().await;
            if wanted(&message) {
                return message;
            }
            self.heard.push_back(message);
        }
    }

    pub(super) async fn answer_to(&mut self, id: &Value) -> Value {
        self.hear(|message| message.get("method").is_none() && message["id"] == *id).await
    }

    pub(super) async fn send_request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = json!(self.last_id);
        self.process.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        self.answer_to(&id).await
    }

    /// Begins a call and returns its id.
    pub(super) async fn begin(&mut self, tool: &str, arguments: Value) -> Value {
        self.send_request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.begin(tool, arguments).await;
        self.answer_to(&id).await
    }

    pub(super) async fn call_for_text(&mut self, tool: &str, arguments: Value) -> String {
        text_of(&self.call(tool, arguments).await)
    }

    /// Asserts that this server works.
    pub(super) async fn echoes(&mut self, server: &str) {
        let answer = self.call(&format!("{server}_echo"), json!({"text": "still there"})).await;
        assert_eq!(answer["result"]["content"][0]["text"], "still there", "{server}: {answer}");
    }

    /// The names of all tools, in the order of the list, over all its pages.
    pub(super) async fn tools(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = json!({});
        loop {
            let answer = self.request("tools/list", cursor).await;
            let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
            names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
            match answer["result"].get("nextCursor") {
                Some(next) => cursor = json!({"cursor": next}),
                None => return names,
            }
        }
    }

    /// Repeats a call until the answer is not an error.
    pub(super) async fn call_until_it_works(&mut self, tool: &str, arguments: &Value) -> String {
        let mut text = String::new();
        let this = &mut *self;
        testkit::wait_until(&format!("{tool} works"), async || {
            let answer = this.call(tool, arguments.clone()).await;
            if answer.get("error").is_some() {
                return false;
            }
            text = text_of(&answer);
            true
        })
        .await;
        text
    }
}
