//! The built-in server against hostile clients and hostile workspaces, through the shipped binary: without a
//! fence, so that its own care is what is tested, and with one.

mod contents;
mod ground;
mod races;
mod read_only;
mod requests;
mod rules;
mod shell;
mod spellings;
mod tool_calls;
