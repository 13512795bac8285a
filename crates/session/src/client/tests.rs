//! Tests of a client: its calls, what it listens to, what it is asked, its deadlines and its end.

mod asked;
mod calls;
mod deadlines;
mod ending;
mod listening;

use serde_json::json;

use super::*;
use crate::settings::Settings;
use crate::testing::{call, client, context, context_with, next_json, next_text, record, request, response};

fn text(content: &str) -> Text {
    Bytes::copy_from_slice(content.as_bytes()).into()
}

/// A client that was opened at this time and has every capability.
fn opened_at(context: &Arc<GatewayContext>, start: Instant) -> Arc<Client> {
    let capabilities = ClientCapabilities { roots: true, sampling: true, elicitation: true };
    Client::new(context, record(), capabilities, start)
}

/// The messages that the reader has not read yet.
fn rest(reader: &mut StreamReader) -> Vec<String> {
    std::iter::from_fn(|| next_text(reader)).collect()
}

fn assignment(worker: WorkerId) -> Assignment {
    Assignment {
        worker,
        upstream: crate::testing::upstream(upstream::Lifecycle::Session),
        timeout: Duration::from_secs(60),
        max_timeout: Duration::from_secs(3600),
    }
}

fn ended(reason: EndReason) -> SessionEnd {
    SessionEnd { reason, error: None }
}
