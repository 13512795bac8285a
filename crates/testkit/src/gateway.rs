//! The shipped binary as a child process: `ringfence serve` on a free port of the loopback interface.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::binaries::{fixture_binary, ringfence_binary};
use crate::collected_output::CollectedOutput;
use crate::processes::descendants;
use crate::protocol::NEWEST;
use crate::raw_client::RawClient;
use crate::waiting::within_deadline;

/// How long the output of an ended gateway may stay open: a process that it left behind may hold the pipe.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);

/// The options of a gateway to start.
#[derive(Debug)]
pub struct GatewayBuilder {
    binary: Option<PathBuf>,
    before: Vec<OsString>,
    host: String,
    port: u16,
    /// Sockets that take the place of host and port.
    passed: Vec<OwnedFd>,
    flags: Vec<OsString>,
    upstream: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    removed_variables: Vec<OsString>,
    directory: Option<PathBuf>,
    user: Option<u32>,
}

impl GatewayBuilder {
    /// Starts this binary instead of the `ringfence` next to the test.
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Puts these words before the command: a program that starts the gateway and ends with it.
    #[must_use]
    pub fn under(mut self, words: Vec<OsString>) -> Self {
        self.before = words;
        self
    }

    /// Passes these sockets as a service manager does, instead of an address on the command line.
    #[must_use]
    pub fn passing(mut self, sockets: &[impl AsFd]) -> Self {
        const ABOVE_ALL_THAT_BASH_USES: i32 = 300;
        for socket in sockets {
            let copy = rustix::io::fcntl_dupfd_cloexec(socket, ABOVE_ALL_THAT_BASH_USES);
            let copy = copy.expect("a socket can be duplicated");
            rustix::io::fcntl_setfd(&copy, FdFlags::empty()).expect("a descriptor can be inherited");
            self.passed.push(copy);
        }
        let numbers = self.passed.iter().map(AsRawFd::as_raw_fd).zip(3..);
        let moves: Vec<String> = numbers.map(|(from, to)| format!("exec {to}<&{from} {from}<&-;")).collect();
        // The shell becomes the gateway, so the pid is the same.
        let script = format!(
            "{} export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES=test; exec \"$@\"",
            moves.join(" "),
            self.passed.len()
        );
        self.before = ["bash", "-euc", &script, "bash"].map(OsString::from).into();
        self
    }

    /// Listens on this host instead of 127.0.0.1.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// Listens on this port instead of any free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Adds an argument before the `--`.
    #[must_use]
    pub fn flag(mut self, flag: impl AsRef<OsStr>) -> Self {
        self.flags.push(flag.as_ref().to_owned());
        self
    }

    /// Adds arguments before the `--`.
    #[must_use]
    pub fn flags(mut self, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.flags.extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        self
    }

    /// Sets the upstream command after the `--`, instead of the fixture.
    #[must_use]
    pub fn command(mut self, command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.upstream = command.into_iter().map(|part| part.as_ref().to_owned()).collect();
        self
    }

    /// Starts the fixture with these flags as the upstream command.
    #[must_use]
    pub fn fixture_flags(self, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let flags = flags.into_iter().map(|flag| flag.as_ref().to_owned());
        self.command(std::iter::once(fixture_binary().into_os_string()).chain(flags))
    }

    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.removed_variables.push(name.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Runs the gateway as this user and the group with the same number. Only root can do that.
    #[must_use]
    pub fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Starts the gateway and waits until it listens; panics with its output if it does not.
    pub async fn start(self) -> Gateway {
        self.try_start().await.unwrap_or_else(|failed| {
            panic!("the gateway did not start ({}):\n{}{}", failed.status, failed.stdout, failed.stderr)
        })
    }

    /// Like `start`, but returns the failure, for gateways that are expected to refuse to start.
    pub async fn try_start(self) -> Result<Gateway, FailedStart> {
        let mut child = self.to_command().spawn().expect("the gateway's binary can be executed");
        let pid = child.id().expect("a child that was not waited for has a pid");
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        let mut gateway = Gateway {
            child,
            group: pid,
            pid,
            url: String::new(),
            listening_event: Value::Null,
            stdout: CollectedOutput::collect("standard output", stdout),
            stderr: CollectedOutput::collect("standard error", stderr),
        };
        let announced = gateway.stdout.wait_for_line(|line| listening_event(line).is_some());
        match within_deadline("the gateway listens", announced).await {
            Some(line) => {
                gateway.listening_event = listening_event(&line).unwrap_or_default();
                // Under another program it is not the child's.
                gateway.pid = gateway.listening_event["pid"]
                    .as_u64()
                    .map_or(gateway.pid, |pid| u32::try_from(pid).expect("a pid fits its own type"));
                gateway.url = gateway.listening_event["url"].as_str().unwrap_or_default().to_owned();
                Ok(gateway)
            }
            None => Err(gateway.into_failed_start().await),
        }
    }

    fn to_command(&self) -> Command {
        let binary = self.binary.clone().unwrap_or_else(ringfence_binary).into_os_string();
        let mut words = self.before.iter().chain(std::iter::once(&binary));
        let mut command = Command::new(words.next().expect("the binary is one of them"));
        let port = self.port.to_string();
        let address = ["--host", &self.host, "--port", &port];
        command
            .args(words)
            .args(["serve", "--json"])
            .args(address.iter().filter(|_| self.passed.is_empty()))
            .args(&self.flags)
            .args((!self.upstream.is_empty()).then_some("--"))
            .args(&self.upstream)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for name in &self.removed_variables {
            command.env_remove(name);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}

fn listening_event(line: &str) -> Option<Value> {
    let event: Value = serde_json::from_str(line).ok()?;
    (event["event"] == "listening").then_some(event)
}

/// A gateway that ended before it listened.
#[derive(Debug)]
pub struct FailedStart {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A running gateway. Dropping it kills it with its process group and everything below it.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    /// The group of the child, which is the gateway or starts it.
    group: u32,
    pid: u32,
    url: String,
    listening_event: Value,
    stdout: CollectedOutput,
    stderr: CollectedOutput,
}

impl Gateway {
    /// A gateway with the fixture as its upstream server and no further flags.
    pub fn builder() -> GatewayBuilder {
        GatewayBuilder {
            binary: None,
            before: Vec::new(),
            host: "127.0.0.1".to_owned(),
            port: 0,
            passed: Vec::new(),
            flags: Vec::new(),
            upstream: vec![fixture_binary().into_os_string()],
            variables: Vec::new(),
            removed_variables: Vec::new(),
            directory: None,
            user: None,
        }
    }

    /// Like `builder`, without fences, for tests of the bridge alone: the fixture may then write anywhere.
    pub fn unfenced() -> GatewayBuilder {
        Self::builder().flag("--unfenced")
    }

    /// A gateway with the built-in server, whose results come as data too.
    pub fn built_in() -> GatewayBuilder {
        Self::without_command().flag("--structured")
    }

    /// A gateway without a command: it has the servers of its configuration, or the built-in one as clients find it.
    pub fn without_command() -> GatewayBuilder {
        Self::builder().command(std::iter::empty::<&str>())
    }

    /// All descendants of the gateway except the zygote, which it keeps ready to launch others.
    pub fn descendants(&self) -> Vec<u32> {
        descendants(self.pid).into_iter().filter(|&pid| !is_zygote(pid)).collect()
    }

    /// The endpoint, as the gateway announced it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The event with which the gateway announced its endpoint.
    pub fn listening_event(&self) -> &Value {
        &self.listening_event
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        let port = self.url.rsplit(':').next().and_then(|rest| rest.split('/').next());
        port.and_then(|port| port.parse().ok()).expect("the endpoint has a port")
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A client for the endpoint, without a session yet.
    pub fn client(&self) -> RawClient {
        RawClient::new(&self.url)
    }

    /// Opens a session of a client without capabilities, with the newest protocol version.
    pub async fn open(&self) -> RawClient {
        self.open_version(NEWEST).await
    }

    /// Opens a session of a client without capabilities.
    pub async fn open_version(&self, version: &str) -> RawClient {
        let mut client = self.client();
        client.open(json!({}), version).await;
        client
    }

    /// The operator's token, which the gateway wrote below its `XDG_CACHE_HOME`.
    pub fn operator_token(&self, caches: &Path) -> String {
        let file = caches.join(format!("ringfence/gateways/{}.json", self.pid));
        let text = std::fs::read_to_string(file).expect("the gateway writes its operator's token");
        let found: Value = serde_json::from_str(&text).expect("the file is JSON");
        found["token"].as_str().expect("the file has a token").to_owned()
    }

    /// Everything on standard error so far.
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard error contains `substring`; returns the line.
    pub async fn wait_for_log(&self, substring: &str) -> String {
        self.stderr.wait_for(substring).await
    }

    pub fn stdout(&self) -> &CollectedOutput {
        &self.stdout
    }

    /// Sends SIGTERM without waiting for anything.
    pub fn send_terminate(&self) {
        self.send_signal(Signal::TERM);
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.send_signal(Signal::TERM);
        self.wait_for_exit().await
    }

    /// Sends SIGKILL to the gateway alone, its children not included, and waits for its end.
    pub async fn kill(&mut self) -> ExitStatus {
        self.send_signal(Signal::KILL);
        self.wait_for_exit().await
    }

    /// Waits for the end and for the rest of the output.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        let status = within_deadline("the gateway exits", self.child.wait()).await;
        let rest = async {
            self.stdout.wait_for_end().await;
            self.stderr.wait_for_end().await;
        };
        // A timeout only means that some process keeps the pipe open.
        drop(timeout(OUTPUT_GRACE, rest).await);
        status.expect("a child can be waited for")
    }

    fn send_signal(&self, signal: Signal) {
        // After `wait` the pid may belong to another process.
        if self.child.id().is_some() {
            // The gateway may end at any moment.
            let _ = kill_process(rustix_pid(self.pid), signal);
        }
    }

    async fn into_failed_start(mut self) -> FailedStart {
        let status = self.wait_for_exit().await;
        FailedStart { status, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.child.id().is_none() {
            return;
        }
        let below = descendants(self.pid);
        // Processes that are already gone are fine.
        let _ = kill_process_group(rustix_pid(self.group), Signal::KILL);
        for pid in below {
            let _ = kill_process(rustix_pid(pid), Signal::KILL);
        }
    }
}

/// Returns true for the zygote, which launches the others, and for a copy of it that waits for the next launch.
/// Supervisors have the same command line, but live in namespaces of their own.
fn is_zygote(pid: u32) -> bool {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = String::from_utf8_lossy(&read("status")).into_owned();
    let namespaces = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let is_launcher = read("cmdline").split(|byte| *byte == 0).any(|word| word == b"fence-zygote");
    let is_waiting = read("comm") == b"ringfence-ahead\n";
    is_waiting || (is_launcher && namespaces.split_whitespace().count() == 1)
}

fn rustix_pid(pid: u32) -> Pid {
    let raw = i32::try_from(pid).expect("a pid fits its own type");
    Pid::from_raw(raw).expect("no process has the pid 0")
}
