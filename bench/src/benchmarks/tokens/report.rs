//! The report on tokens, as Markdown and as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Cost;
use super::servers::{TokenServer, described};
use super::work::Work;
use crate::machine::Machine;
use crate::report::bounds::{Bound, ReachRow};
use crate::report::json::reach_as_json;
use crate::report::markdown::{aligned_table, reach_table};

const MOST_FOR_TOOLS: f64 = 4000.0;
/// Of what a shell prints.
const MOST_FOR_RESULTS: f64 = 1.1;

#[derive(Debug, Default)]
pub(super) struct TokenReport {
    pub(super) costs: BTreeMap<TokenServer, BTreeMap<Work, Cost>>,
    /// What a shell prints for the same work.
    pub(super) plain: BTreeMap<Work, u64>,
}

impl TokenReport {
    fn cost(&self, server: TokenServer, work: Work) -> Option<Cost> {
        self.costs.get(&server)?.get(&work).copied()
    }

    pub(super) fn markdown(&self, machine: &Machine) -> String {
        let mut rows = vec![vec!["tokens".to_owned(), "a shell's output".to_owned()]];
        rows[0].extend(TokenServer::ALL.map(|server| server.name().to_owned()));
        for work in Work::ALL {
            let plain = self.plain.get(&work).map_or_else(|| "–".to_owned(), u64::to_string);
            let costs =
                TokenServer::ALL.map(|server| self.cost(server, work).map_or_else(|| "–".to_owned(), shown));
            rows.push([vec![work.title().to_owned(), plain], costs.to_vec()].concat());
        }
        format!(
            "{}, tokenizer o200k_base; {}. In brackets: what clients feed that prefer `structuredContent`.\n\n{}\n{}",
            machine.date,
            described(),
            aligned_table(&rows),
            reach_table(&self.reach())
        )
    }

    fn reach(&self) -> Vec<ReachRow> {
        let fed = |work: Work| self.cost(TokenServer::BuiltIn, work).map(|cost| as_float(cost.fed));
        let ratio = |work: Work| Some(fed(work)? / as_float(*self.plain.get(&work)?));
        let tools = ReachRow {
            figure: "list of tools".to_owned(),
            measured: fed(Work::ToolList),
            bound: Some(Bound::AtMost(MOST_FOR_TOOLS)),
        };
        let of_work = |work: Work| ReachRow {
            figure: format!("{} / a shell's output", work.title()),
            measured: ratio(work),
            bound: Some(Bound::AtMost(MOST_FOR_RESULTS)),
        };
        std::iter::once(tools).chain([Work::Read, Work::Search, Work::Shell].map(of_work)).collect()
    }

    pub(super) fn json(&self) -> Value {
        let plain: Map<String, Value> =
            self.plain.iter().map(|(work, tokens)| (work.key().to_owned(), (*tokens).into())).collect();
        let of_server = |costs: &BTreeMap<Work, Cost>| -> Map<String, Value> {
            let cost = |cost: &Cost| json!({ "text": cost.text, "fed": cost.fed });
            costs.iter().map(|(work, spent)| (work.key().to_owned(), cost(spent))).collect()
        };
        let servers: Map<String, Value> = self
            .costs
            .iter()
            .map(|(server, costs)| (server.name().to_owned(), of_server(costs).into()))
            .collect();
        json!({ "plain": plain, "servers": servers, "reach": reach_as_json(&self.reach()) })
    }
}

fn shown(cost: Cost) -> String {
    if cost.text == cost.fed { cost.text.to_string() } else { format!("{} ({})", cost.text, cost.fed) }
}

fn as_float(tokens: u64) -> f64 {
    u32::try_from(tokens).map_or(f64::MAX, f64::from)
}
