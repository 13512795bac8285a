//! The command line of the benchmark.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::fence_variants::{FenceMeasurement, FenceVariant};
use crate::legs::Leg;
use crate::measurement_names::Measurement;
use crate::workspace_legs::WorkspaceMeasurement;

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
    /// Where the directories lie that the built-in server works in, to see what a file system makes of it: in
    /// ringfence-bench-scopes below this, which is cleared [default: target/bench/workspace-scopes]
    #[arg(long, value_name = "DIR", requires = "workspace")]
    pub(crate) scopes: Option<PathBuf>,
    /// A short smoke run: the figures mean little
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these legs and measurements (latency, throughput, creation, big, memory, held, processes; of the fence
    /// launch, open, supervisor; of the built-in server overhead, peer, grep, idle, start)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Where the results go as JSON [default: target/bench/results.json, of the fence fence-results.json, …]
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// How many rounds each leg is measured in [default: 7, quick: 2; of the fence 400, quick: 20]
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

    /// Fails on a name in `--only` that is neither a leg nor a measurement.
    pub(crate) fn check_names(&self) -> Result<(), Failure> {
        let known = |name: &String| {
            if self.fence {
                FenceVariant::ALL.iter().any(|variant| variant.name() == name)
                    || FenceMeasurement::ALL.iter().any(|measurement| measurement.name() == name)
            } else if self.workspace {
                WorkspaceMeasurement::ALL.iter().any(|measurement| measurement.name() == name)
            } else {
                Leg::ALL.iter().any(|leg| leg.name() == name)
                    || Measurement::ALL.iter().any(|measurement| measurement.group() == name)
            }
        };
        match self.only.iter().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(Failure::new(format!("--only: no leg or measurement is called {name:?}"))),
        }
    }

    /// The legs to measure; a peer that `--only` names is measured without `--peers` too.
    pub(crate) fn legs(&self) -> Vec<Leg> {
        let named = |leg: &Leg| self.only.iter().any(|name| name == leg.name());
        let any_leg_named = Leg::ALL.iter().any(named);
        let chosen = |leg: &Leg| if any_leg_named { named(leg) } else { self.peers || !leg.is_peer() };
        Leg::ALL.into_iter().filter(chosen).collect()
    }

    pub(crate) fn measurements(&self) -> Vec<Measurement> {
        let named = |measurement: &Measurement| self.only.iter().any(|name| name == measurement.group());
        let any_named = Measurement::ALL.iter().any(named);
        Measurement::ALL.into_iter().filter(|measurement| !any_named || named(measurement)).collect()
    }

    /// What is not fenced is what the rest is compared with, so it is always there.
    pub(crate) fn fence_variants(&self) -> Vec<FenceVariant> {
        let named = |variant: &FenceVariant| self.only.iter().any(|name| name == variant.name());
        let any_named = FenceVariant::ALL.iter().any(named);
        let chosen =
            |variant: &FenceVariant| !any_named || named(variant) || *variant == FenceVariant::Unfenced;
        FenceVariant::ALL.into_iter().filter(chosen).collect()
    }

    pub(crate) fn fence_measurements(&self) -> Vec<FenceMeasurement> {
        let named = |measurement: &FenceMeasurement| self.only.iter().any(|name| name == measurement.name());
        let any_named = FenceMeasurement::ALL.iter().any(named);
        FenceMeasurement::ALL.into_iter().filter(|measurement| !any_named || named(measurement)).collect()
    }

    pub(crate) fn workspace_measurements(&self) -> Vec<WorkspaceMeasurement> {
        let named =
            |measurement: &WorkspaceMeasurement| self.only.iter().any(|name| name == measurement.name());
        let any_named = !self.only.is_empty();
        WorkspaceMeasurement::ALL.into_iter().filter(|measurement| !any_named || named(measurement)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> CommandLine {
        CommandLine::try_parse_from([&["ringfence-bench"], arguments].concat()).unwrap()
    }

    #[test]
    fn only_takes_legs_and_measurements() {
        let line = parse(&["--only", "supergateway,latency"]);
        line.check_names().unwrap();
        assert_eq!(line.legs(), [Leg::Supergateway]);
        assert_eq!(line.measurements(), [Measurement::Latency]);
        parse(&["--only", "nonsense"]).check_names().unwrap_err();
    }

    #[test]
    fn peers_are_off_until_asked_for() {
        assert_eq!(parse(&[]).legs().len(), 5);
        assert_eq!(parse(&["--peers"]).legs().len(), 8);
        assert_eq!(parse(&["--quick"]).rounds(), 2);
    }

    #[test]
    fn the_built_in_server_has_names_of_its_own() {
        let line = parse(&["--workspace", "--only", "grep,idle"]);
        line.check_names().unwrap();
        let chosen = [WorkspaceMeasurement::Grep, WorkspaceMeasurement::Memory];
        assert_eq!(line.workspace_measurements(), chosen);
        parse(&["--workspace", "--only", "latency"]).check_names().unwrap_err();
        assert_eq!(parse(&["--workspace"]).workspace_measurements().len(), 5);
    }

    #[test]
    fn the_fence_has_names_of_its_own() {
        let line = parse(&["--fence", "--only", "tier-a,launch"]);
        line.check_names().unwrap();
        assert_eq!(line.fence_variants(), [FenceVariant::Unfenced, FenceVariant::TierA]);
        assert_eq!(line.fence_measurements(), [FenceMeasurement::Launch]);
        parse(&["--fence", "--only", "latency"]).check_names().unwrap_err();
        parse(&["--only", "launch"]).check_names().unwrap_err();
    }
}
