//! The options of a fence, as the user writes them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fence::{METADATA, ProtectionName, TierChoice};

use crate::environment::Variable;

const RUN_EXAMPLES: &str = "\
Examples:
  ringfence run --scope . -- npx -y some-tool
      writes only inside the directory; temporary files are private, secrets unreadable
  ringfence run --scope . --net none -- python3 script.py
      the same without network
  ringfence run --net http --allow-host '*.example.org' -- curl -sS https://api.example.org/
      only HTTPS, only to these hosts
  ringfence run --report --json -- true
      what holds here, as JSON on stderr

Exit codes:
  125  refused: nothing ran; the reason is on stderr
  126  the command is not executable      127  the command was not found
  128+n  killed by signal n               else the command's own";

const SHELL_EXAMPLES: &str = "\
Examples:
  ringfence sandboxed_shell --working-directory . -- \"cargo fmt --all && cargo test\"
  ringfence sandboxed_shell --net none -- \"make check\"

Exit codes: as of ringfence run.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  ringfence doctor
  ringfence doctor --net http --memory 2G     can this be had here?
  ringfence doctor --json

Exit codes: 0 the policy can be had on this host, 1 it cannot, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) fence: FenceOptions,
    #[command(flatten)]
    pub(crate) running: RunningOptions,
    /// The command, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = SHELL_EXAMPLES)]
pub(crate) struct ShellArguments {
    /// Where the script runs; also the scope, unless --scope names another.
    #[arg(long, value_name = "DIR")]
    pub(crate) working_directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) fence: FenceOptions,
    #[command(flatten)]
    pub(crate) running: RunningOptions,
    /// The script; several words are joined with spaces.
    #[arg(last = true, required = true, value_name = "SCRIPT")]
    pub(crate) script: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) fence: FenceOptions,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of one command, beside those of its fence.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunningOptions {
    /// Pass an environment variable on, or set one (repeatable).
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<Variable>,
    /// As --env, also for variables that make programs load code (`LD_*`, `NODE_OPTIONS`, …), which --env leaves out.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) force_env: Vec<Variable>,
    /// Kill the command when it has written more output than this.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_output: Option<u64>,
    /// Before the command runs, print to stderr which protections hold and how that is known.
    #[arg(long)]
    pub(crate) report: bool,
    /// Print the report as one line of JSON.
    #[arg(long, requires = "report")]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "switches of the command line are independent of each other"
)]
pub(crate) struct FenceOptions {
    /// A directory that may be written (repeatable); by default the working directory. In serve and stdio it is for
    /// clients that name no workspace.
    #[arg(long, visible_alias = "sandbox-scope", value_name = "DIR")]
    pub(crate) scope: Vec<PathBuf>,
    /// One more directory that may be written (repeatable).
    #[arg(long, value_name = "DIR")]
    pub(crate) write: Vec<PathBuf>,
    /// One more path that may be read (repeatable).
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// What may be read: only the system, the scope and what programs need to start (strict, the default), or
    /// everything but the deny list (open).
    #[arg(long, value_enum)]
    pub(crate) read_mode: Option<ReadChoice>,
    /// One more path that must not be read (repeatable).
    #[arg(long, value_name = "PATH")]
    pub(crate) deny_read: Vec<PathBuf>,
    /// The user that commands run as, where `serve` gives principals users.
    #[arg(skip)]
    pub(crate) user: Option<u32>,
    /// Keep keys, tokens, browser profiles and histories unreadable. The default.
    #[arg(long)]
    deny_sensitive_reads: bool,
    /// Make a path of that list readable (repeatable).
    #[arg(long, value_name = "PATH")]
    pub(crate) allow_sensitive_reads: Vec<PathBuf>,
    /// Temporary files: private ones that are removed after the command, or none.
    #[arg(long, value_enum, default_value_t = TempChoice::Private)]
    pub(crate) temp: TempChoice,
    /// The same as --temp none.
    #[arg(long)]
    pub(crate) no_temp_files: bool,
    /// Size limit of the temporary files; enforced in Tier B.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) temp_size: u64,
    /// What package managers download is kept for the next session of the same workspace and principal, or removed with
    /// the session.
    #[arg(long, value_enum, default_value_t = CacheLifetime::Workspace)]
    pub(crate) caches: CacheLifetime,
    /// The most that the caches of all workspaces may take together. The least recently used are removed.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "20G")]
    pub(crate) cache_size: u64,
    /// Let the command use the host's /dev/shm in Tier A; Tier B always has a private one.
    #[arg(long)]
    pub(crate) shm: bool,
    /// What can be reached: all, none, localhost (a private loopback with --host-port), http (only through a
    /// proxy), ports (TCP by port, at any address).
    #[arg(long, visible_alias = "restrict-network", value_enum, value_name = "MODE")]
    pub(crate) net: Option<NetworkChoice>,
    /// A port of the host's loopback to mirror inside (repeatable; --net localhost).
    #[arg(long, value_name = "PORT")]
    pub(crate) host_port: Vec<u16>,
    /// A host that may be reached, or *.DOMAIN (repeatable; --net http); by default any public host.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// A port that may be reached (repeatable; --net ports); by default 80 and 443.
    #[arg(long, value_name = "PORT")]
    pub(crate) tcp_port: Vec<u16>,
    /// development: network all. offline: network none.
    #[arg(long, value_enum, conflicts_with = "net")]
    pub(crate) profile: Option<Profile>,
    /// Let the command make unix sockets.
    #[arg(long)]
    pub(crate) unix_sockets: bool,
    /// Let the command make terminals.
    #[arg(long)]
    pub(crate) pty: bool,
    /// Let processes inside debug each other.
    #[arg(long)]
    pub(crate) allow_debug: bool,
    /// Let programs inside make user namespaces, as browsers do for their own sandbox.
    #[arg(long)]
    pub(crate) allow_nested_userns: bool,
    /// Memory limit, such as 512M or 4G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Limit on the number of processes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) processes: Option<u64>,
    /// Processor limit in cores, such as 1.5.
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub(crate) cpus: Option<f64>,
    /// Limit on the open files of one process.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(8..))]
    pub(crate) open_files: Option<u64>,
    /// Size limit of a single file.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) file_size: Option<u64>,
    /// Which layers: a (everywhere), b (with namespaces), auto (the best that the host offers).
    #[arg(long, value_name = "TIER", default_value = "auto")]
    pub(crate) tier: TierChoice,
    /// Run as root even where only Tier A is available.
    #[arg(long)]
    pub(crate) allow_root: bool,
    /// A protection that may be missing (repeatable, or separated by commas).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) allow_degraded: Vec<ProtectionName>,
    /// A protection that must not be missing (repeatable, or separated by commas).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) require: Vec<ProtectionName>,
    /// Files of the scope that have another name outside: warn, refuse to run, or make the directories that
    /// hold them read-only.
    #[arg(long, value_enum, default_value_t = HardlinkChoice::Warn)]
    pub(crate) hardlinks: HardlinkChoice,
    /// Keep the command from changing files of the scope that other programs execute or obey: git hooks and
    /// settings, editor tasks, settings of agents. The default of serve and stdio.
    #[arg(long)]
    pub(crate) protect_metadata: bool,
    /// Let the command change those files: all of them, or one name such as .claude (repeatable).
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = ALL_METADATA, value_parser = metadata_name)]
    pub(crate) allow_metadata: Vec<String>,
    /// A git directory outside the scope that git may use (repeatable): hooks and configuration in it stay read-only.
    /// Those of worktrees, submodules and folders of a repository are found without it; `none` leaves them outside.
    #[arg(long, value_name = "DIR|none")]
    pub(crate) git_directory: Vec<PathBuf>,
    /// Allow reading the scope, but not writing it.
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// Stands for every name that `--allow-metadata` takes.
pub(crate) const ALL_METADATA: &str = "all";

/// Reads the name of a file that serve and stdio keep as it is.
pub(crate) fn metadata_name(text: &str) -> Result<String, String> {
    if text == ALL_METADATA || METADATA.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("no file of that name is kept; there are: {ALL_METADATA}, {}", METADATA.join(", ")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheLifetime {
    Workspace,
    Session,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadChoice {
    Open,
    Strict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TempChoice {
    Private,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkChoice {
    All,
    None,
    Localhost,
    Http,
    Ports,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Development,
    Offline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HardlinkChoice {
    Warn,
    Refuse,
    Protect,
}

/// `64M`, `1G`, or bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as 4096, 64M or 2G".to_owned();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B')
    {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1_u64 << 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

fn cpus(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|cpus| (0.01..=1024.0).contains(cpus))
        .ok_or_else(|| "expected a number of cores such as 0.5 or 2".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("1", 1), ("4096", 4096), ("64M", 64 << 20), ("2GiB", 2 << 30), ("8kb", 8 << 10)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "M", "1X", "-1", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
