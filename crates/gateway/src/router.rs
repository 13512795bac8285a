//! The paths of the gateway and their handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};

use identity::Principal;

use crate::gateway::Gateway;
use crate::served_body::Counted;
use crate::status::RequestError;
use crate::{
    admin, admission, attach, authentication, copy_endpoints, health, mcp, metrics, session_endpoints,
    status, upgrade,
};

/// The paths for clients. Routes above the authentication layer require a principal.
pub(crate) fn client_router(gateway: &Arc<Gateway>) -> Router {
    let mcp = |post| {
        get(mcp::get).merge(post).delete(mcp::delete).head(mcp::wrong_method).fallback(mcp::wrong_method)
    };
    let router = Router::new()
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
        .route(
            "/session/{id}/context",
            get(session_endpoints::context)
                .post(session_endpoints::change_context)
                .patch(session_endpoints::change_context)
                .fallback(session_endpoints::wrong_method),
        )
        .route("/session/{id}/attach", get(attach::attach))
        .route(
            "/session/{id}/changes",
            get(copy_endpoints::changes).fallback(session_endpoints::wrong_method),
        )
        .route("/session/{id}/apply", post(copy_endpoints::apply).fallback(session_endpoints::wrong_method))
        .route(
            "/session/{id}/discard",
            post(copy_endpoints::discard).fallback(session_endpoints::wrong_method),
        )
        .fallback(status::no_such_path);
    // Without tokens all callers are one principal, whose share would be that of all.
    let router = if gateway.wants_tokens() {
        router.layer(from_fn_with_state(Arc::clone(gateway), count_request))
    } else {
        router
    };
    router
        .layer(from_fn_with_state(Arc::clone(gateway), authentication::require_principal))
        .merge(operator_paths())
        .layer(from_fn_with_state(Arc::clone(gateway), admission::admit))
        .with_state(Arc::clone(gateway))
}

/// The paths of the operator's own listener.
pub(crate) fn operator_router(gateway: &Arc<Gateway>) -> Router {
    operator_paths()
        .route("/upgrade", get(upgrade::show).post(upgrade::begin))
        .fallback(status::no_such_path)
        .layer(from_fn_with_state(Arc::clone(gateway), admission::admit))
        .with_state(Arc::clone(gateway))
}

/// Bounds the requests of one principal that are in progress, the streams that it reads among them.
async fn count_request(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    request: Request,
    next: Next,
) -> Response {
    let Some(counted) = gateway.places.begin_request(&principal) else {
        gateway.sessions.counters().denials.add("too_many");
        return RequestError::TooManyRequests.into();
    };
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Counted(Arc::new(counted)));
    response
}

/// The paths that need no principal: for load balancers, and for the operator, whose token the handlers check.
fn operator_paths() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/sessions", get(admin::list))
        .route("/sessions/prune", post(admin::prune))
        .route("/sessions/{handle}", get(admin::show).delete(admin::stop))
        .route("/sessions/{handle}/context", get(admin::context).patch(admin::change_context))
}
