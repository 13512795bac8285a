//! The commands that users and operators type: exit codes, output, hints, and the files they write.

mod audit;
mod command_line;
mod config;
mod doctor;
mod packages;
mod pinned_packages;
mod register;
pub(crate) mod registry;
