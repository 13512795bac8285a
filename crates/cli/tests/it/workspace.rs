//! The built-in server: its tools, and its defence against hostile clients and workspaces.

mod security;
mod server;
