//! A workspace, a place outside it that must stay as it is, and a server between them.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{PipedProcess, WorkspaceDir, ringfence_binary, workspace_dir};
use tokio::process::Command;

pub(crate) const SECRET: &str = "SECRET: it is outside, and it stays there";
/// The length differs from that of the secret, so that a size tells which one was seen.
pub(crate) const INSIDE: &str = "fine, this is inside\n";
pub(crate) const NAME_OUTSIDE: &str = "only-outside";

/// The flags of each tier; root must say that it means it in the weaker one.
pub(crate) fn tiers() -> [Vec<&'static str>; 2] {
    let is_root = rustix::process::geteuid().is_root();
    let weaker = if is_root { vec!["--tier", "a", "--allow-root"] } else { vec!["--tier", "a"] };
    [weaker, vec!["--tier", "b"]]
}

/// `ws` with `f`, `dir/f` and `dir/sub/f`; `outside` and `ws-evil` with secrets under the same names.
pub(crate) struct Ground {
    pub(crate) base: PathBuf,
    _directory: WorkspaceDir,
}

/// What something outside was like, down to the last change of it.
type Fingerprint = (PathBuf, u64, u64, u32, (i64, i64), (i64, i64));

impl Ground {
    pub(crate) fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        let base = directory.path().canonicalize().unwrap();
        for (place, contents) in [("ws/dir", INSIDE), ("outside", SECRET), ("ws-evil", SECRET)] {
            std::fs::create_dir_all(base.join(place).join("sub")).unwrap();
            for name in ["f", "sub/f", "victim", "old"] {
                std::fs::write(base.join(place).join(name), contents).unwrap();
            }
        }
        std::fs::write(base.join("outside").join(NAME_OUTSIDE), SECRET).unwrap();
        std::fs::write(base.join("ws/f"), INSIDE).unwrap();
        Self { base, _directory: directory }
    }

    pub(crate) fn inside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join("ws").join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.inside(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    pub(crate) fn link(&self, name: &str, to: impl AsRef<Path>) {
        std::os::unix::fs::symlink(to, self.inside(name)).unwrap();
    }

    /// Whatever is done to a name outside shows in it, even if it is undone again.
    pub(crate) fn outside(&self) -> Vec<Fingerprint> {
        let mut found = fingerprint(&self.base.join("outside"));
        found.extend(fingerprint(&self.base.join("ws-evil")));
        found
    }

    /// A server without a fence: only its resolver stands between the client and everything else.
    pub(crate) async fn unfenced(&self, flags: &[&str]) -> Server {
        let root = self.inside("");
        let mut arguments = vec![OsStr::new("workspace"), OsStr::new("--root"), root.as_os_str()];
        arguments.extend(flags.iter().map(OsStr::new));
        Server::start(Command::new(ringfence_binary()).args(arguments).current_dir(&self.base)).await
    }

    pub(crate) async fn fenced(&self, flags: &[&str]) -> Server {
        let mut command = Command::new(ringfence_binary());
        command.args(["stdio", "--scope"]).arg(self.inside("")).args(flags).current_dir(&self.base);
        Server::start(&mut command).await
    }
}

pub(crate) fn fingerprint(place: &Path) -> Vec<Fingerprint> {
    let mut found = Vec::new();
    let mut waiting = vec![place.to_owned()];
    while let Some(path) = waiting.pop() {
        let data = path.symlink_metadata().unwrap();
        if data.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let (modified, changed) = ((data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec()));
        found.push((path, data.ino(), data.size(), data.mode(), modified, changed));
    }
    found.sort();
    found
}

/// A server, with the handshake done.
pub(crate) struct Server {
    pub(crate) process: PipedProcess,
    last_id: u64,
}

impl Server {
    async fn start(command: &mut Command) -> Self {
        let mut server = Self { process: PipedProcess::start(command), last_id: 0 };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" },
        });
        let answer = server.request("initialize", params).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence-workspace", "{answer}");
        server.process.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        server
    }

    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.process.send(&message).await;
        self.last_id
    }

    pub(crate) async fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// The next answer, whosever it is.
    pub(crate) async fn next_answer(&mut self) -> Value {
        loop {
            let message = self.process.read().await;
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let answer = self.next_answer().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The result of a tool. A refusal by the protocol has none.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.send_call(tool, &arguments).await;
        let answer = self.next_answer().await;
        assert_eq!(answer["id"], id, "{answer}");
        assert!(answer["result"].is_object(), "{tool} {arguments}: {answer}");
        answer["result"].clone()
    }

    /// What a tool gives that works.
    pub(crate) async fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone()).await;
        assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// The code of a tool's refusal.
    pub(crate) async fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone()).await;
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id().unwrap()
    }

    /// Many requests under way at once; the answers, by the order of the requests.
    pub(crate) async fn pipeline(&mut self, calls: &[(&str, Value)], at_once: usize) -> Vec<Value> {
        let mut answers = vec![Value::Null; calls.len()];
        for (part, calls) in calls.chunks(at_once).enumerate() {
            let first = self.last_id + 1;
            for (method, params) in calls {
                self.send(method, params.clone()).await;
            }
            for _ in calls {
                let answer = self.next_answer().await;
                let index = usize::try_from(answer["id"].as_u64().unwrap() - first).unwrap();
                answers[part * at_once + index] = answer;
            }
        }
        answers
    }
}
