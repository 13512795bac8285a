//! The configuration as data: which servers there are, where and how they run, and who may use which secret.
//!
//! The principal type is [`Configuration`]. It is what the operator wrote, checked; nothing in it was looked up
//! on this machine yet. A [`Template`] becomes text when a session needs it.
//!
//! ```
//! use std::path::Path;
//!
//! let text = "servers:\n  time: {command: [uvx, mcp-server-time]}\n";
//! let read = config::Configuration::parse(text, Path::new("config.yaml"))?;
//! assert_eq!(read.configuration.servers[0].name, "time");
//! # Ok::<(), config::ConfigError>(())
//! ```
//!
//! A file becomes a tree with places (`tree`), is compared with the tables of keys (`keys`, `check`) and read
//! (`reading`). [`schema`] and [`reference()`] are made from the same tables. [`edit`] and [`client_file`] change
//! texts and leave everything else in them as it stands.

mod check;
pub mod client_file;
mod diagnostic;
pub mod edit;
mod keys;
mod model;
mod reading;
mod reference;
mod schema;
mod secrets;
mod template;
mod tree;
mod variables_file;
mod words;

pub use diagnostic::{ConfigError, Diagnostic};
pub use model::{
    Configuration, ExecutionContext, FencePolicy, Lifecycle, LocalExecution, NameMode, NetworkMode, Origin,
    Server, ServerLimits, Start, Storage, ToolRules, Transport,
};
pub use reading::{Format, Read};
pub use reference::reference;
pub use schema::schema;
pub use secrets::{SecretSource, Secrets};
pub use template::{Missing, Piece, Template, TemplateError, Values};
pub use variables_file::read_variables;
