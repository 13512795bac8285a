//! The built-in server: its tools, and its defences against hostile clients and workspaces.

mod security;
mod server;
