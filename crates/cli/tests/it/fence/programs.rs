//! Real programs keep working inside the fence, in both tiers: package tools, compilers, language runtimes,
//! version control, shells and an official MCP server. Users would switch off a fence that breaks them.

mod below_temporary_directories;
pub(crate) mod fenced_run;
mod languages;
mod mcp_server;
mod own_root;
mod package_tools;
mod plain_user;
mod reads_and_temporary_files;
mod scripts;
mod shells;
mod signals;
mod standard_streams;
mod version_control;
