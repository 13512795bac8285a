//! Starts a leg, learns where it listens, and stops it with everything it started.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::error::{Error, WhileDoing};
use crate::legs::Leg;
use crate::legs::peers;
use crate::machine::process_table::ProcessTable;
use crate::machine::started_processes;
use crate::mcp_client::http_session::HttpEndpoint;
use crate::mcp_client::session::Endpoint;
use crate::mcp_client::stdio_session::StdioEndpoint;
use crate::programs::Programs;

const START_LIMIT: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct RunningLeg {
    pub(crate) endpoint: Endpoint,
    gateway: Option<Gateway>,
}

/// The gateway process; dropping it kills it and its descendants.
#[derive(Debug)]
struct Gateway {
    process: Child,
    process_id: u32,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        started_processes::kill_tree(self.process_id);
    }
}

impl RunningLeg {
    pub(crate) async fn start(leg: Leg, programs: &Programs) -> Result<Self, Error> {
        Self::start_with(leg, programs, &[]).await
    }

    /// The same with these options for one of our gateways.
    pub(crate) async fn start_with(leg: Leg, programs: &Programs, options: &[&str]) -> Result<Self, Error> {
        match leg {
            Leg::DirectStdio => {
                let endpoint = StdioEndpoint { program: programs.fixture.clone() };
                Ok(Self { endpoint: Endpoint::Stdio(endpoint), gateway: None })
            }
            Leg::BareAxum
            | Leg::RingfenceSession
            | Leg::RingfenceShared
            | Leg::RingfenceFenced
            | Leg::BeforeSession
            | Leg::BeforeShared
            | Leg::BeforeFenced => start_and_read_where_it_listens(leg, programs, options).await,
            Leg::Supergateway | Leg::NpmMcpProxy | Leg::PypiMcpProxy => start_peer(leg, programs).await,
        }
    }

    /// Starts a fenced gateway in front of any command. The gateway installs its package first if needed.
    pub(crate) async fn start_serving(programs: &Programs, command: &[OsString]) -> Result<Self, Error> {
        let scope = programs.workspace()?;
        Self::start_serving_in(programs, "ringfence-packages", &scope, &[], command).await
    }

    /// Starts a gateway whose sessions work in `scope`; without a command it serves the built-in tools.
    pub(crate) async fn start_serving_in(
        programs: &Programs,
        name: &str,
        scope: &Path,
        options: &[OsString],
        command: &[OsString],
    ) -> Result<Self, Error> {
        let mut words: Vec<OsString> = vec![programs.ringfence.clone().into_os_string()];
        words.extend(["serve", "--port", "0", "--json", "--log-level", "warn"].map(Into::into));
        words.extend(["--sandbox-scope".into(), scope.as_os_str().to_owned()]);
        words.extend_from_slice(options);
        if !command.is_empty() {
            words.push("--".into());
            words.extend_from_slice(command);
        }
        Self::start_listening(name, programs, &words).await
    }

    /// Starts a bare server that answers everything with the bytes of a file.
    pub(crate) async fn start_same_bytes(programs: &Programs, file: &Path) -> Result<Self, Error> {
        let words = [
            programs.bench.clone().into_os_string(),
            "same-bytes-server".into(),
            file.as_os_str().to_owned(),
        ];
        Self::start_listening("same-bytes", programs, &words).await
    }

    async fn start_listening(name: &str, programs: &Programs, words: &[OsString]) -> Result<Self, Error> {
        let mut gateway = spawn(name, programs, words, Stdio::piped())?;
        let output =
            gateway.process.stdout.take().ok_or_else(|| Error::new("the gateway has no standard output"))?;
        let endpoint = tokio::time::timeout(START_LIMIT, read_listening_line(output))
            .await
            .while_doing("it never said where it listens")??;
        Ok(Self { endpoint: Endpoint::Http(endpoint), gateway: Some(gateway) })
    }

    pub(crate) fn http_endpoint(&self) -> Result<&HttpEndpoint, Error> {
        match &self.endpoint {
            Endpoint::Http(endpoint) => Ok(endpoint),
            Endpoint::Stdio(_) => Err(Error::new("this leg has no HTTP endpoint")),
        }
    }

    pub(crate) fn gateway_process_id(&self) -> Option<u32> {
        self.gateway.as_ref().map(|gateway| gateway.process_id)
    }

    /// Descendants of the gateway; none for direct stdio.
    pub(crate) fn descendants(&self) -> Vec<u32> {
        let descendants_of = |process_id| ProcessTable::read().descendants_of(process_id);
        self.gateway_process_id().map(descendants_of).unwrap_or_default()
    }

    /// Kills the gateway and waits until it is gone.
    pub(crate) async fn stop(mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            started_processes::kill_tree(gateway.process_id);
            // Nothing more can be done about a process that survives SIGKILL; the run continues.
            let _ = tokio::time::timeout(START_LIMIT, gateway.process.wait()).await;
        }
    }
}

async fn start_and_read_where_it_listens(
    leg: Leg,
    programs: &Programs,
    options: &[&str],
) -> Result<RunningLeg, Error> {
    let words = own_command_line(leg, programs, options);
    let mut gateway = spawn(leg.name(), programs, &words, Stdio::piped())?;
    let output =
        gateway.process.stdout.take().ok_or_else(|| Error::new("the gateway has no standard output"))?;
    let mut endpoint = tokio::time::timeout(START_LIMIT, read_listening_line(output))
        .await
        .while_doing("it never said where it listens")??;
    if leg.is_fenced() {
        endpoint.root = Some(format!("file://{}", programs.workspace()?.display()));
    }
    Ok(RunningLeg { endpoint: Endpoint::Http(endpoint), gateway: Some(gateway) })
}

fn own_command_line(leg: Leg, programs: &Programs, options: &[&str]) -> Vec<OsString> {
    if leg == Leg::BareAxum {
        return vec![programs.bench.clone().into_os_string(), "bare-axum-server".into()];
    }
    let binary = if leg.is_before() { programs.before.as_ref() } else { None }.unwrap_or(&programs.ringfence);
    let mut words: Vec<OsString> = vec![binary.clone().into_os_string()];
    words.extend(["serve", "--port", "0", "--json", "--log-level", "warn"].map(OsString::from));
    match leg {
        // Unfenced, to measure the bridge alone.
        Leg::RingfenceShared | Leg::BeforeShared => {
            words.extend(["--unfenced", "--shared"].map(OsString::from));
        }
        Leg::RingfenceFenced | Leg::BeforeFenced => {}
        _ => words.push("--unfenced".into()),
    }
    words.extend(options.iter().map(OsString::from));
    words.extend(["--".into(), programs.fixture.clone().into_os_string()]);
    words
}

/// Reads up to the listening line; a task discards later output.
async fn read_listening_line(output: ChildStdout) -> Result<HttpEndpoint, Error> {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if event["event"] == "listening" {
            let endpoint = parse_url(event["url"].as_str().unwrap_or_default())?;
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(endpoint);
        }
    }
    Err(Error::new("it ended before it listened"))
}

fn parse_url(url: &str) -> Result<HttpEndpoint, Error> {
    let not_ours = || Error::new(format!("not a URL we can use: {url:?}"));
    let rest = url.strip_prefix("http://").ok_or_else(not_ours)?;
    let path_start = rest.find('/').ok_or_else(not_ours)?;
    let address: SocketAddr = rest[..path_start].parse().map_err(|_| not_ours())?;
    if !address.ip().is_loopback() {
        return Err(not_ours());
    }
    Ok(HttpEndpoint { address, path: rest[path_start..].to_owned(), root: None })
}

async fn start_peer(leg: Leg, programs: &Programs) -> Result<RunningLeg, Error> {
    let port = free_port()?;
    let mut gateway = spawn(leg.name(), programs, &peers::command_line(leg, programs, port), Stdio::null())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let give_up = Instant::now() + START_LIMIT;
    while TcpStream::connect(address).await.is_err() {
        if let Some(status) = gateway.process.try_wait()? {
            return Err(Error::new(format!("it ended before it listened ({status})")));
        }
        if Instant::now() > give_up {
            return Err(Error::new("it never listened"));
        }
        tokio::time::sleep(START_POLL).await;
    }
    let endpoint = HttpEndpoint { address, path: "/mcp".to_owned(), root: None };
    Ok(RunningLeg { endpoint: Endpoint::Http(endpoint), gateway: Some(gateway) })
}

fn free_port() -> Result<u16, Error> {
    let listener =
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).while_doing("finding a free port")?;
    Ok(listener.local_addr()?.port())
}

fn spawn(name: &str, programs: &Programs, words: &[OsString], output: Stdio) -> Result<Gateway, Error> {
    let (program, arguments) = words.split_first().ok_or_else(|| Error::new("an empty command line"))?;
    let log = File::create(programs.log_file(name)).while_doing("creating a log file")?;
    let process = Command::new(program)
        .args(arguments)
        // A default scope must not hold the programs that it serves.
        .current_dir(programs.workspace()?)
        .env("NODE_ENV", "production")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .while_doing(&format!("spawning {}", program.display()))?;
    started_processes::remember(process.id());
    let process_id = process.id().ok_or_else(|| Error::new("it ended at once"))?;
    Ok(Gateway { process, process_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_loopback_only() {
        let endpoint = parse_url("http://127.0.0.1:8123/mcp").unwrap();
        assert_eq!((endpoint.address.port(), endpoint.path.as_str()), (8123, "/mcp"));
        parse_url("http://192.0.2.1:80/mcp").unwrap_err();
        parse_url("nonsense").unwrap_err();
    }
}
