//! Commands: started, watched, bounded and ended.
//!
//! [`Operations`] is the table of all commands that this server has started for its client. Each one is an
//! [`Operation`]: a shell in a session and a nested domain of its own, with a thread that reads its output, ends
//! it when its time is over or when it is cancelled, and stays for as long as something of it runs. A
//! [`Report`] says how an operation stands.

mod capture;
mod command;
mod internal_command;
mod operation;
mod operation_id;
mod operations;
mod report;
mod screen;
#[cfg(test)]
mod tests;
mod tree;
mod watcher;

pub use command::ShellCommand;
pub use operation::{Operation, Waited};
pub use operations::{LookupError, OperationLimits, Operations, StartError, Unfinished};
pub use report::{Report, State};
