//! `ringfence workspace`, and the options of the built-in server for all commands that start it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};
use workspace::{Options, ResultForm, RuleOptions};

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  ringfence workspace
      serve the working directory on stdin and stdout, without a fence
  ringfence run --scope . -- ringfence workspace
      the same inside a fence; `ringfence serve` and `ringfence stdio` do this for every session
  ringfence workspace --describe
      all tools with their arguments, in Markdown";

/// Serve file, search, edit and shell tools for a directory on stdin and stdout.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "switches of the command line are independent of each other"
)]
pub(crate) struct WorkspaceArguments {
    /// A directory to work in (repeatable; relative paths start at the first). The default is the session's
    /// directories inside a gateway, and the working directory otherwise.
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Offer only tools that do not write.
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    options: WorkspaceOptions,
    /// Report file operations to the gateway.
    #[arg(long, hide = true)]
    report_files: bool,
    /// Offer to take the changes of a session workspace over.
    #[arg(long, hide = true)]
    offer_apply: bool,
    /// Print the documentation of all tools in Markdown and exit.
    #[arg(long)]
    describe: bool,
}

/// Options of the built-in server.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Built-in server")]
pub(crate) struct WorkspaceOptions {
    /// Sync every write of the file tools to the disk before reporting it.
    #[arg(long)]
    durable_writes: bool,
    /// Give the results of tools as data too (`structuredContent`), with an output schema, for programs that read them.
    /// Models read the text, which is shorter.
    #[arg(long)]
    structured: bool,
    /// Offer only these tools (repeatable, or separated by commas).
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    allow_tool: Vec<String>,
    /// Do not offer these tools (repeatable, or separated by commas).
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    block_tool: Vec<String>,
    /// Let the file tools access only paths that match (repeatable). A pattern without `/` matches names at any
    /// depth. Does not apply to the shell: see --deny-read.
    #[arg(long, value_name = "GLOB")]
    allow_path: Vec<String>,
    /// Keep the file tools away from paths that match (repeatable).
    #[arg(long, value_name = "GLOB")]
    block_path: Vec<String>,
    /// Run only commands that begin with these words (repeatable). Advice, not a boundary: a shell has many ways
    /// to say one thing.
    #[arg(long, value_name = "WORDS")]
    allow_command: Vec<String>,
    /// Do not run commands that begin with these words (repeatable). Advice, not a boundary.
    #[arg(long, value_name = "WORDS")]
    block_command: Vec<String>,
}

/// What a gateway tells its built-in server, beside the options for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfGateway {
    pub(crate) read_only: bool,
    pub(crate) report_files: bool,
    /// Clients may take the changes of their session's copy over.
    pub(crate) offer_apply: bool,
}

impl WorkspaceOptions {
    /// Whether any option was given.
    pub(crate) fn is_given(&self) -> bool {
        let lists = [
            &self.allow_tool,
            &self.block_tool,
            &self.allow_path,
            &self.block_path,
            &self.allow_command,
            &self.block_command,
        ];
        self.durable_writes || self.structured || lists.iter().any(|list| !list.is_empty())
    }

    /// The command line of a server with these options.
    pub(crate) fn to_arguments(&self, gateway: OfGateway) -> Vec<OsString> {
        let OfGateway { read_only, report_files, offer_apply } = gateway;
        let mut arguments = vec![OsString::from("workspace")];
        let switches = [
            (read_only, "--read-only"),
            (report_files, "--report-files"),
            (offer_apply, "--offer-apply"),
            (self.durable_writes, "--durable-writes"),
            (self.structured, "--structured"),
        ];
        arguments.extend(switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name.into()));
        for (name, values) in [
            ("--allow-tool", &self.allow_tool),
            ("--block-tool", &self.block_tool),
            ("--allow-path", &self.allow_path),
            ("--block-path", &self.block_path),
            ("--allow-command", &self.allow_command),
            ("--block-command", &self.block_command),
        ] {
            arguments.extend(values.iter().map(|value| format!("{name}={value}").into()));
        }
        arguments
    }

    fn rules(&self) -> RuleOptions {
        RuleOptions {
            allow_tools: self.allow_tool.clone(),
            block_tools: self.block_tool.clone(),
            allow_paths: self.allow_path.clone(),
            block_paths: self.block_path.clone(),
            allow_commands: self.allow_command.clone(),
            block_commands: self.block_command.clone(),
        }
    }

    /// Refuses invalid rules at the start, before any session uses them.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.rules().check().map_err(|error| Error::Workspace(error.into()))
    }
}

/// Serve file, search, edit and shell tools for a directory on stdin and stdout.
#[derive(Debug, Parser)]
#[command(name = "ringfence workspace", version)]
struct Worker {
    #[command(flatten)]
    arguments: WorkspaceArguments,
}

/// The arguments of this process, if it is `ringfence workspace`.
pub(crate) fn arguments_of_worker() -> Option<WorkspaceArguments> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "workspace" {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    Some(only_switches(&words).unwrap_or_else(|| {
        Worker::parse_from(std::iter::once("ringfence workspace".into()).chain(words)).arguments
    }))
}

/// Reads the usual arguments without the parser, which would be a fifth of the memory of a worker.
fn only_switches(words: &[OsString]) -> Option<WorkspaceArguments> {
    let mut arguments = WorkspaceArguments::default();
    for word in words {
        match word.to_str()? {
            "--read-only" => arguments.read_only = true,
            "--report-files" => arguments.report_files = true,
            "--offer-apply" => arguments.offer_apply = true,
            "--durable-writes" => arguments.options.durable_writes = true,
            "--structured" => arguments.options.structured = true,
            _ => return None,
        }
    }
    Some(arguments)
}

pub(crate) fn run(arguments: WorkspaceArguments) -> Result<(), Error> {
    if arguments.describe {
        print!("{}", workspace::tools_in_markdown());
        return Ok(());
    }
    let roots = match (arguments.root, scope_of_session()) {
        (roots, _) if !roots.is_empty() => roots,
        (_, Some(scope)) => scope,
        (_, None) => vec![std::env::current_dir()?],
    };
    let options = Options {
        roots,
        is_read_only: arguments.read_only,
        has_durable_writes: arguments.options.durable_writes,
        rules: arguments.options.rules(),
        reports: arguments.report_files,
        offers_apply: arguments.offer_apply,
        results: if arguments.options.structured { ResultForm::TextAndData } else { ResultForm::Text },
    };
    workspace::serve(options).map_err(Error::Workspace)
}

/// The directories that the gateway passes as URIs in the environment.
fn scope_of_session() -> Option<Vec<PathBuf>> {
    let text = std::env::var(wire::worker_variable::SCOPE).ok()?;
    let uris: Vec<String> = serde_json::from_str(&text).ok()?;
    let paths: Option<Vec<PathBuf>> = uris
        .iter()
        .map(|uri| {
            use std::os::unix::ffi::OsStringExt;
            Some(PathBuf::from(OsString::from_vec(wire::file_uri_path(uri).ok()?)))
        })
        .collect();
    paths.filter(|paths| !paths.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn arguments_of_a_gateway_mean_the_same_with_and_without_the_parser() {
        for case in 0..32 {
            let is_on = |bit: u8| case & bit != 0;
            let options = WorkspaceOptions {
                durable_writes: is_on(1),
                structured: is_on(8),
                ..WorkspaceOptions::default()
            };
            let given = options.to_arguments(OfGateway {
                read_only: is_on(2),
                report_files: is_on(4),
                offer_apply: is_on(16),
            });
            let parsed = Worker::parse_from(given.clone()).arguments;
            assert_eq!(
                format!("{:?}", only_switches(&given[1..]).unwrap()),
                format!("{parsed:?}"),
                "{given:?}"
            );
        }
    }

    #[test]
    fn other_arguments_are_left_to_the_parser() {
        for given in [&["--read-only=x"][..], &["--block-tool=a"], &["--help"], &["--describe"], &["more"]] {
            assert!(only_switches(&words(given)).is_none(), "{given:?}");
        }
    }
}
