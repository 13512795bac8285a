//! Several servers behind one endpoint: the cost of routing among ten of them, of cached lists, of a server on the
//! client's machine, and of unused servers. All servers are fenced; clients take turns with one call in flight.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::command_line::CommandLine;
use crate::error::{Error, WhileDoing};
use crate::legs::running_leg::RunningLeg;
use crate::machine::process_table::proportional_set_kib;
use crate::machine::started_processes;
use crate::mcp_client::http_connection::HttpConnection;
use crate::mcp_client::http_session::HttpEndpoint;
use crate::mcp_client::messages::{INITIALIZE, INITIALIZED};
use crate::programs::{self, Programs};
use crate::report::bounds::{Bound, ReachRow};
use crate::report::markdown::{reach_table, run_line};
use crate::report::{RunDescription, write_json};
use crate::statistics::{median, percentile, ratios_per_round};

const SERVERS: u32 = 10;
const TOOLS: u32 = 50;
const CALLS_PER_ROUND: usize = 150;
const LISTS_PER_ROUND: usize = 60;
const CALLS_PER_TURN: usize = 10;
/// How long to wait until the gateway has freed the memory that it used to probe all servers.
const AT_REST_AFTER: Duration = Duration::from_secs(15);
const TEXT: &str = "sixteen bytes it";

/// Microseconds per round; memory in KiB, measured once.
#[derive(Debug, Default)]
struct ManyServers {
    one: Vec<Option<f64>>,
    ten: Vec<Option<f64>>,
    list: Vec<Option<f64>>,
    same_bytes: Vec<Option<f64>>,
    attached: Vec<Option<f64>>,
    list_bytes: usize,
    unused_kib: f64,
}

/// Measures, prints the report and writes the results.
pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    let programs = programs::build_and_locate()?;
    let started = Instant::now();
    let measured = started_processes::run_and_kill_orphans(measure(&programs, command_line.rounds()))??;
    println!("{}", measured.markdown(&RunDescription::since(started, command_line)));
    write_json(&command_line.json_file(&programs, "servers-results.json"), &measured.json())
}

async fn measure(programs: &Programs, rounds: u32) -> Result<ManyServers, Error> {
    let directory = programs.work_directory.join("servers");
    std::fs::create_dir_all(&directory).while_doing("creating a directory")?;
    let scope = programs.workspace()?;
    let command = ["many-tools-server".to_owned(), TOOLS.to_string()];
    let mut words = vec![programs.bench.clone().into_os_string()];
    words.extend(command.iter().map(Into::into));
    let one = RunningLeg::start_serving_in(programs, "servers-one", &scope, &[], &words).await?;
    let configuration = write_configuration(programs, &directory, "ten", SERVERS)?;
    let ten = serve_configuration(programs, &scope, "servers-ten", &configuration).await?;
    let mut of_one = Talk::begin(one.http_endpoint()?).await?;
    let mut of_ten = Talk::begin(ten.http_endpoint()?).await?;
    let list = of_ten.exchange(&request("tools/list", &json!({}))).await?.1;
    if list.matches("\"name\":\"s").count() < (SERVERS * TOOLS) as usize {
        return Err(Error::new("the list does not hold all tools"));
    }
    let bytes_file = directory.join("list.json");
    std::fs::write(&bytes_file, &list)?;
    let same = RunningLeg::start_same_bytes(programs, &bytes_file).await?;
    let mut of_same = Talk::new(same.http_endpoint()?).await?;
    let attachment = Attachment::start(programs, &directory, &scope).await?;
    let mut of_attached = attachment.talk().await?;
    let mut measured = ManyServers { list_bytes: list.len(), ..ManyServers::default() };
    for round in 0..=rounds {
        eprintln!("round {round} of {rounds} …");
        let [one, ten, attached] = in_turns(
            [
                (&mut of_one, call("tool_7"), TEXT),
                (&mut of_ten, call("s3_tool_7"), TEXT),
                (&mut of_attached, call("files_tool_7"), TEXT),
            ],
            CALLS_PER_ROUND,
        )
        .await?;
        let list = || request("tools/list", &json!({}));
        let [list, same_bytes] =
            in_turns([(&mut of_ten, list(), "tool_49"), (&mut of_same, list(), "tool_49")], LISTS_PER_ROUND)
                .await?;
        if round > 0 {
            measured.one.push(one);
            measured.ten.push(ten);
            measured.attached.push(attached);
            measured.list.push(list);
            measured.same_bytes.push(same_bytes);
        }
    }
    attachment.end().await;
    for leg in [one, ten, same] {
        leg.stop().await;
    }
    measured.unused_kib = unused_memory(programs, &directory, &scope).await?;
    Ok(measured)
}

/// KiB per additional configured server that no call uses, with one session open.
async fn unused_memory(programs: &Programs, directory: &Path, scope: &Path) -> Result<f64, Error> {
    let mut memory = Vec::new();
    for (name, servers) in [("few", 1), ("many", 41)] {
        let configuration = write_configuration(programs, directory, name, servers)?;
        let gateway =
            serve_configuration(programs, scope, &format!("servers-{name}"), &configuration).await?;
        let mut talk = Talk::begin(gateway.http_endpoint()?).await?;
        talk.exchange(&request("tools/list", &json!({}))).await?;
        // Probes end in the background, and their threads a little later.
        tokio::time::sleep(AT_REST_AFTER).await;
        let mut processes = gateway.descendants();
        processes.extend(gateway.gateway_process_id());
        memory.push(proportional_set_kib(&processes));
        gateway.stop().await;
    }
    Ok((memory[1] - memory[0]) / 40.0)
}

fn write_configuration(
    programs: &Programs,
    directory: &Path,
    name: &str,
    servers: u32,
) -> Result<PathBuf, Error> {
    let server = json!({ "command": [programs.bench, "many-tools-server", TOOLS.to_string()] });
    let entries: serde_json::Map<String, Value> =
        (0..servers).map(|number| (format!("s{number}"), server.clone())).collect();
    write_file(directory, name, &json!({ "servers": entries }))
}

fn write_file(directory: &Path, name: &str, configuration: &Value) -> Result<PathBuf, Error> {
    let file = directory.join(format!("{name}.json"));
    std::fs::write(&file, configuration.to_string())?;
    Ok(file)
}

async fn serve_configuration(
    programs: &Programs,
    scope: &Path,
    name: &str,
    configuration: &Path,
) -> Result<RunningLeg, Error> {
    let options = ["--config".into(), configuration.as_os_str().to_owned()];
    RunningLeg::start_serving_in(programs, name, scope, &options, &[]).await
}

fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

fn call(tool: &str) -> String {
    request("tools/call", &json!({ "name": tool, "arguments": { "text": TEXT } }))
}

/// One client on one connection.
struct Talk {
    connection: HttpConnection,
    endpoint: HttpEndpoint,
    session: String,
}

impl Talk {
    async fn new(endpoint: &HttpEndpoint) -> Result<Self, Error> {
        let mut connection = HttpConnection::open(endpoint.address).await?;
        connection.grow_buffer(1 << 20);
        Ok(Self { connection, endpoint: endpoint.clone(), session: String::new() })
    }

    async fn begin(endpoint: &HttpEndpoint) -> Result<Self, Error> {
        let mut talk = Self::new(endpoint).await?;
        for message in [INITIALIZE, INITIALIZED] {
            talk.exchange(message).await?;
        }
        Ok(talk)
    }

    async fn exchange(&mut self, message: &str) -> Result<(f64, String), Error> {
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n{}Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{message}",
            self.endpoint.path,
            self.endpoint.address,
            self.session,
            message.len()
        );
        let mut body = Vec::new();
        let began = Instant::now();
        let head =
            self.connection.exchange(request.as_bytes(), |piece| body.extend_from_slice(piece)).await?;
        let took = began.elapsed().as_secs_f64() * 1e6;
        if let Some(id) = head.session_id {
            self.session = format!("Mcp-Session-Id: {id}\r\n");
        }
        Ok((took, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The time of one call; fails unless the answer contains `expected`.
    async fn timed(&mut self, message: &str, expected: &str) -> Result<f64, Error> {
        let (took, answer) = self.exchange(message).await?;
        if answer.contains(expected) {
            return Ok(took);
        }
        let shown: String = answer.chars().take(300).collect();
        Err(Error::new(format!("wrong answer: {shown}")))
    }
}

/// The median call time of each client. Clients take turns of a few calls, so that other load hits all alike.
async fn in_turns<const N: usize>(
    mut clients: [(&mut Talk, String, &str); N],
    calls: usize,
) -> Result<[Option<f64>; N], Error> {
    let mut samples: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(calls));
    while samples[0].len() < calls {
        for ((talk, message, expected), samples) in clients.iter_mut().zip(&mut samples) {
            for _ in 0..CALLS_PER_TURN {
                samples.push(talk.timed(message, expected).await?);
            }
        }
    }
    Ok(samples.map(|samples| percentile(&samples, 50)))
}

/// A gateway, and a `ringfence connect` that attaches a server on the client's machine.
struct Attachment {
    gateway: RunningLeg,
    connect: Child,
    session_file: PathBuf,
}

impl Attachment {
    async fn start(programs: &Programs, directory: &Path, scope: &Path) -> Result<Self, Error> {
        let far = json!({ "servers": { "files": { "executionContext": "local" } }, "localExecution": "attachment" });
        let near = json!({ "servers": { "files": {
            "executionContext": "local",
            "command": [programs.bench, "many-tools-server", TOOLS.to_string()],
        } } });
        let far = write_file(directory, "gateway", &far)?;
        let near = write_file(directory, "client", &near)?;
        let gateway = serve_configuration(programs, scope, "servers-gateway", &far).await?;
        let session_file = directory.join("session.json");
        let _ = std::fs::remove_file(&session_file);
        let endpoint = gateway.http_endpoint()?;
        let mut connect = Command::new(&programs.ringfence)
            .arg("connect")
            .arg(format!("http://{}", endpoint.address))
            .args(["--log-level", "warn", "--config"])
            .arg(near)
            .arg("--session-file")
            .arg(&session_file)
            .arg("--scope")
            .arg(scope)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        started_processes::remember(connect.id());
        let stdin = connect.stdin.as_mut().ok_or_else(|| Error::new("no stdin"))?;
        stdin.write_all(format!("{INITIALIZE}\n{INITIALIZED}\n").as_bytes()).await?;
        Ok(Self { gateway, connect, session_file })
    }

    /// Connects another client to the same session, once a call to the attached server succeeds.
    async fn talk(&self) -> Result<Talk, Error> {
        let give_up = Instant::now() + Duration::from_secs(30);
        let mut talk = Talk::new(self.gateway.http_endpoint()?).await?;
        while Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let Ok(text) = std::fs::read_to_string(&self.session_file) else { continue };
            let session: Value = serde_json::from_str(&text)?;
            talk.session =
                format!("Mcp-Session-Id: {}\r\n", session["sessionId"].as_str().unwrap_or_default());
            let (_, answer) = talk.exchange(&call("files_tool_7")).await?;
            if answer.contains(TEXT) {
                return Ok(talk);
            }
        }
        Err(Error::new("the client's machine was never attached"))
    }

    async fn end(mut self) {
        // The servers that it started end with it.
        let _ = self.connect.kill().await;
        self.gateway.stop().await;
    }
}

impl ManyServers {
    fn rows(&self) -> Vec<ReachRow> {
        let ratio = |above: &[Option<f64>], below: &[Option<f64>]| median(&ratios_per_round(above, below));
        let row = |figure: &str, measured: Option<f64>, limit: f64| ReachRow {
            figure: figure.to_owned(),
            measured,
            bound: Some(Bound::AtMost(limit)),
        };
        vec![
            row(
                "sequential p50, ten servers with 50 tools each / one server",
                ratio(&self.ten, &self.one),
                1.1,
            ),
            row(
                "tools/list from the cache / bare axum with the same bytes",
                ratio(&self.list, &self.same_bytes),
                2.0,
            ),
            row(
                "sequential p50, server on the client's machine / server here",
                ratio(&self.attached, &self.one),
                2.5,
            ),
            row("MiB for each configured server that nobody uses", Some(self.unused_kib / 1024.0), 0.05),
        ]
    }

    fn markdown(&self, run: &RunDescription) -> String {
        let of = |samples: &[Option<f64>]| {
            median(&samples.iter().flatten().copied().collect::<Vec<_>>()).unwrap_or_default()
        };
        format!(
            "{}\n| one call after the other, p50 | µs |\n|---|---:|\n| one server, passed through | {:.0} |\n\
             | ten servers with {TOOLS} tools each | {:.0} |\n| a server on the client's machine, through the gateway | {:.0} |\n\
             | `tools/list` of {} tools ({} KiB) | {:.0} |\n| bare axum, the same bytes | {:.0} |\n\n{}",
            run_line(run),
            of(&self.one),
            of(&self.ten),
            of(&self.attached),
            SERVERS * TOOLS,
            self.list_bytes / 1024,
            of(&self.list),
            of(&self.same_bytes),
            reach_table(&self.rows()),
        )
    }

    fn json(&self) -> Value {
        json!({
            "one_us": self.one,
            "ten_us": self.ten,
            "attached_us": self.attached,
            "list_us": self.list,
            "same_bytes_us": self.same_bytes,
            "list_bytes": self.list_bytes,
            "unused_server_kib": self.unused_kib,
        })
    }
}
