//! The fence around commands and servers: hostile programs, real programs, the network, launches and ends.

mod ends;
mod escapes;
mod launches;
mod network;
pub(crate) mod programs;
mod report;
mod without_landlock;
