//! A workspace, directories outside it that must not change, and servers on the workspace.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{StdioClient, WorkspaceDir, ringfence_binary, workspace_dir};
use tokio::process::Command;

pub(crate) const SECRET: &str = "SECRET: it is outside, and it stays there";
/// Differs from the secret in length, so that a size reveals which one was read.
pub(crate) const INSIDE: &str = "fine, this is inside\n";
pub(crate) const NAME_OUTSIDE: &str = "only-outside";

/// The flags of each tier; in Tier A root needs `--allow-root`.
pub(crate) fn tiers() -> [Vec<&'static str>; 2] {
    let is_root = rustix::process::geteuid().is_root();
    let weaker = if is_root { vec!["--tier", "a", "--allow-root"] } else { vec!["--tier", "a"] };
    [weaker, vec!["--tier", "b"]]
}

/// `ws` with the files `f`, `dir/f` and `dir/sub/f`; `outside` and `ws-evil` with secrets in `f` and `sub/f`.
pub(crate) struct Ground {
    pub(crate) base: PathBuf,
    _directory: WorkspaceDir,
}

/// A file's path, inode, size, mode, modification time and change time.
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

    /// The fingerprints of all files outside. They show any change, even one that was undone.
    pub(crate) fn outside(&self) -> Vec<Fingerprint> {
        let mut found = fingerprint(&self.base.join("outside"));
        found.extend(fingerprint(&self.base.join("ws-evil")));
        found
    }

    /// A server without a fence: only its resolver confines the client.
    pub(crate) async fn unfenced(&self, flags: &[&str]) -> Server {
        let root = self.inside("");
        let mut arguments = ["workspace", "--structured", "--root"].map(OsStr::new).to_vec();
        arguments.push(root.as_os_str());
        arguments.extend(flags.iter().map(OsStr::new));
        Server::start(Command::new(ringfence_binary()).args(arguments).current_dir(&self.base)).await
    }

    pub(crate) async fn fenced(&self, flags: &[&str]) -> Server {
        let mut command = Command::new(ringfence_binary());
        command
            .args(["stdio", "--structured", "--scope"])
            .arg(self.inside(""))
            .args(flags)
            .current_dir(&self.base);
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

/// An initialized server.
pub(crate) struct Server {
    client: StdioClient,
}

impl Server {
    async fn start(command: &mut Command) -> Self {
        let (client, opened) = StdioClient::open(command, json!({})).await;
        assert_eq!(opened["result"]["serverInfo"]["name"], "ringfence-workspace", "{opened}");
        Self { client }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        self.request_amid_others(method, params).await
    }

    /// Calls a tool and returns its result; panics on a protocol error.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.request_amid_others("tools/call", params).await;
        assert!(answer["result"].is_object(), "{tool} {arguments}: {answer}");
        answer["result"].clone()
    }

    /// Makes a call that must succeed and returns its structured content.
    pub(crate) async fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone()).await;
        assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Makes a call that must fail and returns its error code.
    pub(crate) async fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone()).await;
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends `at_once` requests at a time; returns the answers in the order of the requests.
    pub(crate) async fn pipeline(&mut self, calls: &[(&str, Value)], at_once: usize) -> Vec<Value> {
        let mut answers = vec![Value::Null; calls.len()];
        for (part, calls) in calls.chunks(at_once).enumerate() {
            let mut ids = Vec::new();
            for (method, params) in calls {
                ids.push(json!(self.send_request(method, params.clone()).await));
            }
            for _ in calls {
                let answer = self.next_response().await;
                let index = ids.iter().position(|id| *id == answer["id"]).unwrap();
                answers[part * at_once + index] = answer;
            }
        }
        answers
    }
}

impl std::ops::Deref for Server {
    type Target = StdioClient;

    fn deref(&self) -> &StdioClient {
        &self.client
    }
}

impl std::ops::DerefMut for Server {
    fn deref_mut(&mut self) -> &mut StdioClient {
        &mut self.client
    }
}
