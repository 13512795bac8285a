//! The built-in server against hostile clients and hostile workspaces, through the shipped binary: without a fence,
//! to test its own checks, and with one.

mod contents;
pub(super) mod ground;
mod races;
mod read_only;
mod requests;
mod rules;
mod shell;
mod spellings;
mod tool_calls;
