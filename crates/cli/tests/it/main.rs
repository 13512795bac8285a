//! End-to-end tests: the shipped binary, driven over HTTP and stdio, in front of real servers.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod aggregate;
mod audit;
mod authentication;
mod bridge;
mod commands;
mod connect;
mod fence;
mod restart;
mod rights;
mod scopes;
mod session_workspaces;
mod sessions;
mod staged;
mod workspace;
