//! The command line of the benchmark.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::error::Error;
use crate::programs::Programs;

/// Measures ringfence against direct stdio, a bare axum server and, when asked, its peers.
#[derive(Debug, Parser)]
#[command(name = "ringfence-bench", version)]
#[allow(clippy::struct_excessive_bools, reason = "switches of the command line")]
pub(crate) struct CommandLine {
    /// Also measure supergateway and the two mcp-proxy packages (installs them under target/bench/peers)
    #[arg(long)]
    pub(crate) peers: bool,
    /// Measure the fence instead: starting commands in it, and what it costs them
    #[arg(long, conflicts_with = "peers")]
    pub(crate) fence: bool,
    /// Measure sessions with an npx server instead, against the server started bare
    #[arg(long, conflicts_with_all = ["peers", "fence"])]
    pub(crate) packages: bool,
    /// Measure the built-in server instead: what its tools cost, and others that do the same
    #[arg(long, conflicts_with_all = ["peers", "fence", "packages"])]
    pub(crate) workspace: bool,
    /// Measure several servers behind one endpoint instead
    #[arg(long, conflicts_with_all = ["peers", "fence", "packages", "workspace"])]
    pub(crate) servers: bool,
    /// Measure a developer's day instead: tests and installs in new sessions, against the same outside
    #[arg(long, conflicts_with_all = ["peers", "fence", "packages", "workspace", "servers"])]
    pub(crate) day: bool,
    /// Measure sessions that outlive the gateway instead: what keeping them costs, and how soon they go on
    #[arg(long, conflicts_with_all = ["peers", "fence", "packages", "workspace", "servers", "day"])]
    pub(crate) durable: bool,
    /// Count the tokens of tool lists and results instead, against other file servers (installs one under target/bench)
    #[arg(long, conflicts_with_all = ["peers", "fence", "packages", "workspace", "servers", "day", "durable"])]
    pub(crate) tokens: bool,
    /// Measure session workspaces instead: making one, reading in it, its disk use, and taking changes over
    #[arg(long, conflicts_with_all = ["peers", "fence", "packages", "workspace", "servers", "day", "tokens"])]
    pub(crate) workspaces: bool,
    /// Measure this other build of ringfence too, in the same rounds, and compare
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["packages", "workspace", "servers", "day", "durable", "tokens", "workspaces"])]
    pub(crate) before: Option<PathBuf>,
    /// Put the directories that the built-in server works in below this one, to measure another file system:
    /// in ringfence-bench-scopes, which is cleared [default: target/bench/workspace-scopes]
    #[arg(long, value_name = "DIR", requires = "workspace")]
    pub(crate) scopes: Option<PathBuf>,
    /// A short smoke run: the figures mean little
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run only these legs and measurements (latency, throughput, creation, big, memory, held, vanished, processes; of the fence
    /// launch, open, supervisor; of the built-in server overhead, peer, grep, idle, start)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Write the results as JSON to this file [default: target/bench/results.json, with --fence
    /// fence-results.json, …]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure each leg in this many rounds [default: 7, quick: 2; of the fence 400, quick: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    #[command(subcommand)]
    pub(crate) own_process: Option<OwnProcess>,
}

/// Programs the benchmark runs as processes of their own.
#[derive(Debug, Subcommand)]
pub(crate) enum OwnProcess {
    #[command(hide = true)]
    BareAxumServer,
    #[command(hide = true)]
    FenceOpenClose { file: PathBuf, count: u32 },
    #[command(hide = true)]
    FenceWait,
    #[command(hide = true)]
    PlainFileServer { root: PathBuf },
    #[command(hide = true)]
    ManyToolsServer { tools: u32 },
    #[command(hide = true)]
    SameBytesServer { file: PathBuf },
}

impl CommandLine {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(match (self.fence, self.quick) {
            (false, false) => 7,
            (false, true) => 2,
            (true, false) => 400,
            (true, true) => 20,
        })
    }

    /// Fails on a name in `--only` that is not known.
    pub(crate) fn check_names(&self, known: impl Iterator<Item = &'static str>) -> Result<(), Error> {
        let known: Vec<&str> = known.collect();
        match self.only.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Error::new(format!("--only: no leg or measurement is called {name:?}"))),
        }
    }

    pub(crate) fn names(&self, name: &str) -> bool {
        self.only.iter().any(|named| named == name)
    }

    /// The items that `--only` names; all of them if it names none.
    pub(crate) fn chosen<T: Copy>(&self, all: &[T], name_of: impl Fn(T) -> &'static str) -> Vec<T> {
        let is_named = |item: &T| self.names(name_of(*item));
        let any_named = all.iter().any(is_named);
        all.iter().copied().filter(|item| !any_named || is_named(item)).collect()
    }

    /// The file for the results; `default` is its name in `target/bench`.
    pub(crate) fn json_file(&self, programs: &Programs, default: &str) -> PathBuf {
        self.json.clone().unwrap_or_else(|| programs.work_directory.join(default))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn parse(arguments: &[&str]) -> CommandLine {
        CommandLine::try_parse_from([&["ringfence-bench"], arguments].concat()).unwrap()
    }
}
