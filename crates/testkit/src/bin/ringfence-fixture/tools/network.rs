//! A tool that uses the network as any program would.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use serde::Deserialize;

use crate::outgoing::{ToolOutcome, text_outcome};
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::tool::QuickTool;

/// No test reads more than this.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    (name == "tcp_exchange").then_some(tcp_exchange as QuickTool)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Exchange {
    address: String,
    send: String,
}

/// Sends a text and returns everything received until the other side closes.
fn tcp_exchange(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let exchange: Exchange = parse_arguments(arguments)?;
    let mut answer = String::new();
    let mut talk = || {
        let mut stream = TcpStream::connect(&exchange.address)?;
        stream.write_all(exchange.send.as_bytes())?;
        stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)
    };
    talk().map_err(|error| error.to_string())?;
    Ok(text_outcome(answer))
}
