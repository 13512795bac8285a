//! The benchmarks: the bridges by default, and one for each switch of the command line.

pub(crate) mod bridges;
pub(crate) mod day;
pub(crate) mod durable;
pub(crate) mod fence;
pub(crate) mod packages;
mod round_order;
pub(crate) mod servers;
pub(crate) mod tokens;
pub(crate) mod workspace;
pub(crate) mod workspaces;
