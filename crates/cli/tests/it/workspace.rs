//! The built-in server: its tools, and its defences against hostile clients and workspaces.

mod caches;
mod second_sessions;
mod security;
mod server;
