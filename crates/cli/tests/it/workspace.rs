//! The built-in server: its tools, and its defences against hostile clients and workspaces.

mod caches;
mod security;
mod server;
