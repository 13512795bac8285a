//! Tools that use the network as any program would.

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
    match name {
        "tcp_exchange" => Some(tcp_exchange),
        "tcp_hold" => Some(tcp_hold),
        _ => None,
    }
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hold {
    address: String,
    count: usize,
}

/// Opens connections, sends nothing, and keeps them until the server ends. Returns how many could be opened.
fn tcp_hold(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let hold: Hold = parse_arguments(arguments)?;
    let connections: Vec<TcpStream> =
        (0..hold.count).map_while(|_| TcpStream::connect(&hold.address).ok()).collect();
    let count = connections.len();
    std::mem::forget(connections);
    Ok(text_outcome(count.to_string()))
}
