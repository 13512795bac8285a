//! A connection and servers for tests. None of them runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{ExecutionContext, NameMode, Secrets};
#[cfg(not(fuzzing))]
use fence::HostEnvironment;
#[cfg(fuzzing)]
use session::HostEnvironment;
use session::{OnRootsChange, RootsChoice, ScopeRules, ServerPlan, Settings, Terms};
use upstream::{Lifecycle, Timeouts, Transport, Upstream};

use super::Connection;
use crate::gateway_address::GatewayAddress;

/// A connection to a gateway that does not exist.
pub(crate) fn connection(servers: Vec<ServerPlan>) -> Connection {
    let host_environment =
        Arc::new(HostEnvironment::of_this_process().expect("this process has an environment"));
    Connection {
        gateway: GatewayAddress::new("http://127.0.0.1:9", None).expect("an address"),
        servers,
        terms: Terms {
            names: NameMode::default(),
            secrets: Secrets::default(),
            local_is_here: true,
            storage: None,
        },
        settings: Settings::default(),
        rules: ScopeRules {
            roots: RootsChoice::First,
            on_change: OnRootsChange::Terminate,
            default: None,
            allowed: Vec::new(),
            session_workspace: None,
            copies: None,
            names: BTreeMap::new(),
            host_environment,
        },
        audit: None,
        instance: None,
        on_gateway_session: Box::new(|_| ()),
    }
}

pub(crate) fn server(name: &str) -> ServerPlan {
    let upstream = Upstream {
        name: name.to_owned(),
        transport: Transport::Attached,
        lifecycle: Lifecycle::Session,
        reports_files: false,
        timeouts: Timeouts::default(),
        is_guarded: true,
        redaction: upstream::Redaction::default(),
    };
    ServerPlan { context: ExecutionContext::Local, ..ServerPlan::fixed(upstream) }
}
