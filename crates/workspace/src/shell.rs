//! Commands: started, watched, bounded and ended.
//!
//! [`Operations`] is the table of all commands that this server has started for its client. Each one is an
//! [`Operation`]: a shell in a session and a nested domain of its own, with a thread that reads its output, ends
//! it when its time is over or when it is cancelled, and stays for as long as something of it runs. A
//! [`Report`] says how an operation stands.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, Instant};
//! use workspace::shell::{OperationLimits, Operations, ShellCommand};
//!
//! let operations = Operations::new(OperationLimits::default())?;
//! let operation = operations.start(ShellCommand {
//!     script: "cargo test".to_owned(),
//!     directory: std::fs::File::open(".")?.into(),
//!     directory_name: ".".to_owned(),
//!     environment: Vec::new(),
//!     timeout: Some(Duration::from_secs(600)),
//! })?;
//! operation.wait(Instant::now() + Duration::from_secs(30), &|| false, &mut |output| print!("{output}"));
//! println!("{}", operation.report().output);
//! # Ok(())
//! # }
//! ```

mod capture;
mod command;
mod errand;
mod operation;
mod operations;
mod report;
mod screen;
#[cfg(test)]
mod tests;
mod tree;
mod watcher;

pub use command::ShellCommand;
pub use operation::{Operation, OperationId, Waited};
pub use operations::{LookupError, OperationLimits, Operations, StartError, Unfinished};
pub use report::{Report, State};
