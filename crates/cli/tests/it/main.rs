//! End-to-end tests: the shipped binary, driven over HTTP and stdio, in front of real servers.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod aggregate;
mod audit_log;
mod authentication;
mod chaos;
mod clients_and_servers;
mod command_line;
mod config_command;
mod conformance;
mod connect;
mod doctor;
mod escapes;
mod fence_ends;
mod fence_launches;
mod fenced_network;
mod fenced_programs;
mod http_rules;
mod isolation;
mod packages;
mod processes;
mod register;
mod scopes;
mod server_requests;
mod sessions;
mod shared;
mod stdio_mode;
mod streams;
mod timeouts;
mod workspace_security;
mod workspace_server;
