//! The built-in MCP server: file, search, edit and shell tools below the directories of one session.
//!
//! [`serve`] speaks MCP on stdin and stdout until its input ends. A gateway starts it like any other server, inside
//! a fence. `files::Workspace` enforces the same boundary from inside: the kernel resolves every path beneath a
//! directory that is already open.
//!
//! ```no_run
//! use workspace::{Options, serve};
//!
//! serve(Options { roots: vec!["/home/me/project".into()], ..Options::default() })?;
//! # Ok::<(), workspace::ServeError>(())
//! ```
//!
//! The other exports are for the benchmark, which measures the same work without the resolver.

mod baseline;
mod completion;
mod context;
mod edit;
mod files;
mod gateway_line;
mod identity;
mod journal;
mod options;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod output;
#[cfg(test)]
mod races;
mod resources;
mod rules;
mod search;
mod server;
mod shell;
mod state;
mod subscriptions;
mod text;
mod tools;

pub use edit::Landing;
pub use options::{Options, ServeError, serve};
pub use rules::{RuleError, RuleOptions};
pub use text::{FileKind, FileText, Lines};
pub use tools::{ResultForm, hash_of, size_in_words, tools_in_markdown};
