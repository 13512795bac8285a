//! Tests of reading and editing files, through the public functions only.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod edits;
mod errors;
mod other_clients;
mod own_format;

use std::path::Path;

use config::{Configuration, Read, Server};

/// Reads a text as the YAML file `/etc/rf/c.yaml`.
fn yaml(text: &str) -> Read {
    Configuration::parse(text, Path::new("/etc/rf/c.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

fn json(text: &str) -> Read {
    Configuration::parse(text, Path::new("/etc/rf/c.json")).unwrap_or_else(|error| panic!("{error}"))
}

fn server<'a>(read: &'a Read, name: &str) -> &'a Server {
    read.configuration.servers.iter().find(|server| server.name == name).unwrap()
}

/// The errors in a file, one line for each, with hints: `line:column: message | hint`.
fn wrong(text: &str, file: &str) -> Vec<String> {
    let error = Configuration::parse(text, Path::new(file)).unwrap_err();
    error.diagnostics().iter().map(|diagnostic| in_a_line(diagnostic, file)).collect()
}

fn in_a_line(diagnostic: &config::Diagnostic, file: &str) -> String {
    let text = diagnostic.to_string();
    text.strip_prefix(&format!("{file}:")).unwrap().replace("\nhint: ", " | ")
}
