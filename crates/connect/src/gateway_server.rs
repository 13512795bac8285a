//! The gateway as one more server beside those of this machine.

use std::time::Duration;

use config::{NameMode, Piece, Start, Template};
use session::{Fill, ServerPlan, Settings};
use upstream::{Address, Lifecycle, Timeouts, Transport, Upstream};

use crate::gateway_address::GatewayAddress;

/// The gateway's name among the servers.
pub(crate) const GATEWAY: &str = "gateway";

/// The gateway must give up a call first, so that the client hears its reason.
const LONGER_THAN_THE_GATEWAY: Duration = Duration::from_secs(30);

/// `here`: the servers that run on this machine, which the gateway therefore must not show again.
pub(crate) fn gateway_server(address: &GatewayAddress, settings: &Settings, here: Vec<String>) -> ServerPlan {
    let mut headers = vec![
        (
            "Ringfence-Workspace".to_owned(),
            Template(vec![Piece::Text("client:".to_owned()), Piece::WorkingDirectory]),
        ),
        // Distinguishes this client from others of the same session.
        ("Ringfence-Instance".to_owned(), Template(vec![Piece::InstanceId])),
    ];
    if let Some(authorization) = address.authorization() {
        headers.push(("Authorization".to_owned(), Template::from(authorization.as_str())));
    }
    let upstream = Upstream {
        name: GATEWAY.to_owned(),
        transport: Transport::Http(Address { url: address.mcp_url(), headers: Vec::new() }),
        lifecycle: Lifecycle::Session,
        reports_files: false,
        timeouts: Timeouts {
            call: Some(settings.timeout + LONGER_THAN_THE_GATEWAY),
            longest_call: Some(settings.max_timeout + LONGER_THAN_THE_GATEWAY),
            start: None,
        },
        // The gateway itself reports which of its servers do not answer.
        is_guarded: false,
        redaction: upstream::Redaction::default(),
    };
    ServerPlan {
        fill: Fill { headers, ..Fill::default() },
        start: Start::Eager,
        // Its names are unique already.
        names: Some(NameMode::None),
        hides: here,
        ..ServerPlan::fixed(upstream)
    }
}
