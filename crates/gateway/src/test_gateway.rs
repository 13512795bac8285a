//! A gateway without servers, for the tests of this crate.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use crate::authentication::ConnectedFrom;
use crate::router::client_router;
use crate::{Config, Gateway};

pub(crate) fn gateway_with(config: Config) -> Arc<Gateway> {
    let servers = session::ServerSet::Many {
        servers: vec![],
        terms: session::Terms {
            names: config::NameMode::Prefix,
            secrets: config::Secrets::default(),
            local_is_here: true,
            storage: None,
        },
    };
    let host_environment = Arc::new(fence::HostEnvironment::of_this_process().unwrap());
    let peers = fence::Peers::new(host_environment.outside());
    let rules = session::ScopeRules {
        roots: session::RootsChoice::First,
        on_change: session::OnRootsChange::Terminate,
        default: None,
        allowed: vec![],
        session_workspace: None,
        copies: None,
        names: BTreeMap::new(),
        host_environment,
    };
    Gateway::new(
        session::Sessions::new(servers, session::Settings::default(), rules, None, None),
        config,
        peers,
    )
}

/// Sends a request through all layers. Returns the status and the body, or null if the body is no JSON.
pub(crate) async fn answer(gateway: &Arc<Gateway>, mut request: Request<Body>) -> (u16, Value) {
    request.extensions_mut().insert(ConnectedFrom(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
    let service = TowerToHyperService::new(client_router(gateway));
    let response = service.call(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}
