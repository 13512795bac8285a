//! The built-in MCP server: file, search, edit and shell tools below the directories of one session.
//!
//! [`serve`] speaks MCP on stdin and stdout until its input ends. It is an ordinary server: a gateway starts it
//! like any other, inside a fence. What the fence enforces from outside, [`files::Workspace`] keeps to from
//! inside: every path goes to the kernel beneath a directory that is already open.
//!
//! ```
//! use workspace::files::Workspace;
//!
//! let directory = std::env::temp_dir();
//! let workspace = Workspace::open(&[directory])?;
//! assert!(workspace.path("a/../b").is_ok(), "the kernel says where that leads");
//! assert_eq!(workspace.path("/etc/passwd").unwrap_err().code(), "outside_workspace");
//! # Ok::<(), std::io::Error>(())
//! ```

mod baseline;
mod completion;
pub mod edit;
pub mod files;
mod host;
mod identity;
mod journal;
mod options;
mod output;
mod resources;
mod rules;
pub mod search;
mod server;
pub mod shell;
pub mod text;
mod tools;
mod watch;

pub use options::{Options, ServeError, serve};
pub use rules::{RuleError, RuleOptions};
pub use tools::{hash_of, size_in_words, tools_in_markdown};
