//! What a model reads of file servers: how many tokens the list of tools takes, and the results of the same work, from the
//! built-in server, the official `server-filesystem` and `desktop-commander`.

mod conversation;
mod report;
mod servers;
mod tokenizer;
mod work;

use std::collections::BTreeMap;

use self::conversation::Conversation;
use self::report::TokenReport;
use self::servers::TokenServer;
use self::tokenizer::count_tokens;
use self::work::{Work, plain_text};
use crate::benchmarks::workspace::files::make_scope;
use crate::command_line::CommandLine;
use crate::error::{Error, WhileDoing};
use crate::legs::peers;
use crate::machine::{Machine, started_processes};
use crate::programs::{self, Programs};
use crate::report::write_json;

/// What a server answered to one piece of work.
#[derive(Debug, Clone, Default)]
struct Answered {
    /// The text of the results.
    text: String,
    /// What clients hand to a model that prefer `structuredContent`, as Claude Code and Codex do.
    fed: String,
}

/// Tokens of an answer.
#[derive(Debug, Clone, Copy)]
struct Cost {
    text: u64,
    fed: u64,
}

pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    let programs = programs::build_and_locate()?;
    let report = started_processes::run_and_kill_orphans(measure(&programs))??;
    println!("{}", report.markdown(&Machine::read()));
    write_json(&command_line.json_file(&programs, "token-results.json"), &report.json())
}

async fn measure(programs: &Programs) -> Result<TokenReport, Error> {
    let directory = servers::desktop_commander_directory(programs);
    peers::install_npm_packages(&directory, &servers::desktop_commander_manifest()).await?;
    let mut report = TokenReport::default();
    for server in TokenServer::ALL {
        eprintln!("asking {} …", server.name());
        let scope = make_scope(programs, &format!("tokens-{}", server.name()))?;
        let mut conversation = Conversation::start(server.command(programs, &scope)?)?;
        let mut answers = BTreeMap::new();
        for work in Work::ALL {
            if let Some(answered) =
                server.answer(work, &scope, &mut conversation).while_doing(server.name())?
            {
                answers.insert(work, answered);
            }
        }
        conversation.stop()?;
        report.costs.insert(server, costs(programs, &answers)?);
        report.plain = plain_costs(programs, &scope)?;
    }
    Ok(report)
}

fn costs(programs: &Programs, answers: &BTreeMap<Work, Answered>) -> Result<BTreeMap<Work, Cost>, Error> {
    let texts: Vec<&str> =
        answers.values().flat_map(|answered| [answered.text.as_str(), answered.fed.as_str()]).collect();
    let counted = count_tokens(programs, &texts)?;
    let costs = counted.chunks_exact(2).map(|pair| Cost { text: pair[0], fed: pair[1] });
    Ok(answers.keys().copied().zip(costs).collect())
}

/// The tokens of what a shell would print for the same work.
fn plain_costs(programs: &Programs, scope: &std::path::Path) -> Result<BTreeMap<Work, u64>, Error> {
    let mut texts = BTreeMap::new();
    for work in Work::ALL {
        if let Some(text) = plain_text(work, scope)? {
            texts.insert(work, text);
        }
    }
    let counted = count_tokens(programs, &texts.values().map(String::as_str).collect::<Vec<_>>())?;
    Ok(texts.into_keys().zip(counted).collect())
}
