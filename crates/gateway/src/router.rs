//! The paths of the gateway and their handlers.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::gateway::Gateway;
use crate::{admin, admission, attach, authentication, health, mcp, metrics, session_endpoints, status};

/// The paths for clients. Routes above the authentication layer require a principal.
pub(crate) fn client_router(gateway: &Arc<Gateway>) -> Router {
    let mcp = |post| {
        get(mcp::get).merge(post).delete(mcp::delete).head(mcp::wrong_method).fallback(mcp::wrong_method)
    };
    Router::new()
        .route("/mcp", mcp(post(mcp::post)))
        .route("/mcp/w/{workspace}", mcp(post(mcp::post_in_workspace)))
        .route("/session/init", post(session_endpoints::init).fallback(session_endpoints::wrong_method))
        .route(
            "/session/{id}",
            get(session_endpoints::show)
                .delete(session_endpoints::destroy)
                .fallback(session_endpoints::wrong_method),
        )
        .route(
            "/session/{id}/destroy",
            post(session_endpoints::destroy).fallback(session_endpoints::wrong_method),
        )
        .route("/session/{id}/attach", get(attach::attach))
        .fallback(status::no_such_path)
        .layer(from_fn_with_state(Arc::clone(gateway), authentication::require_principal))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .merge(operator_paths())
        .layer(from_fn_with_state(Arc::clone(gateway), admission::admit))
        .with_state(Arc::clone(gateway))
}

/// The paths of the operator's own listener.
pub(crate) fn operator_router(gateway: &Arc<Gateway>) -> Router {
    operator_paths()
        .fallback(status::no_such_path)
        .layer(from_fn_with_state(Arc::clone(gateway), admission::admit))
        .with_state(Arc::clone(gateway))
}

/// These handlers check the operator's token themselves.
fn operator_paths() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/sessions", get(admin::list))
        .route("/sessions/{handle}", get(admin::show).delete(admin::stop))
}
