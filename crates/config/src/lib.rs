//! The configuration as data: which servers there are, where and how they run, and who may use which secret.
//!
//! The principal type is [`Configuration`]: what the operator wrote, checked. Nothing in it has been looked up on this
//! machine yet. A [`Template`] becomes text when a session needs it.
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
//! A file is parsed into values with places (`document`), checked against the tables of keys (`keys`, `check`) and
//! read (`reading`). [`schema`] and [`reference()`] are made from the same tables. [`edit`] and [`client_file`] change
//! one entry of a file and leave everything else as it is.

mod check;
pub mod client_file;
mod diagnostic;
mod document;
pub mod edit;
mod expiry;
mod file_stamp;
mod keys;
mod model;
mod principals;
mod private_file;
mod reading;
mod reference;
mod schema;
mod secrets;
mod shell_words;
mod template;
mod variables_file;
mod weakening;

pub use diagnostic::{ConfigError, Diagnostic};
pub use expiry::parse_expiry;
pub use file_stamp::FileStamp;
pub use model::{
    Configuration, ExecutionContext, FencePolicy, Lifecycle, LocalExecution, NO_GIT_DIRECTORY, NameMode,
    NetworkMode, Origin, Server, ServerLimits, Start, Storage, ToolRules, Transport,
};
pub use principals::{Group, PrincipalLimits, PrincipalRights, Principals, Standing};
pub use private_file::{PrivateFileError, check_private, read_secret, read_token};
pub use reading::{Format, Read};
pub use reference::reference;
pub use schema::schema;
pub use secrets::{SecretSource, Secrets};
pub use template::{MissingValueError, Piece, Template, TemplateError, Values};
pub use variables_file::read_variables;
pub use weakening::Weakening;
