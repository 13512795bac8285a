//! `GET /metrics`, for Prometheus. Without the operator's token it shows only sums, and nothing at all where callers
//! need tokens.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use session::{SessionOverview, SessionQuery, Sessions, WorkerOverview};

use crate::Gateway;
use crate::admin::{is_operator, on_blocking_thread};
use crate::status::RequestError;

type Measure = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabel {
    session: String,
}

pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let is_operator = is_operator(&gateway, &headers);
    if gateway.wants_tokens() && !is_operator {
        return RequestError::NotOperator.into();
    }
    let text = on_blocking_thread(&gateway, move |sessions| describe(sessions, is_operator)).await;
    let mut response = Response::new(Body::from(text.unwrap_or_default()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    response
}

fn describe(sessions: &Sessions, with_sessions: bool) -> String {
    let mut registry = Registry::with_prefix("ringfence");
    sessions.counters().register(&mut registry, &sessions.name());
    let overview = sessions.overview(&SessionQuery::default());
    let whole = |registry: &mut Registry, name: &str, help: &str, value: usize| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    whole(&mut registry, "sessions_active", "Open sessions", overview.len());
    whole(&mut registry, "instances_active", "Client windows with sessions", sessions.instances());
    let workers = distinct_workers(&overview);
    whole(&mut registry, "workers_seated", "Workers of open sessions", workers.len());
    if let Some(unsent) = sessions.unsent_audit_records() {
        let unsent = usize::try_from(unsent).unwrap_or(usize::MAX);
        whole(&mut registry, "audit_unsent_records", "Records that the audit sink does not have yet", unsent);
    }
    let measure = |registry: &mut Registry, name: &str, help: &str, unit: Unit, value: f64| {
        let gauge = Measure::default();
        gauge.set(value);
        registry.register_with_unit(name, help, unit, gauge);
    };
    let memory = workers.iter().map(|worker| memory_of(worker)).sum();
    let time = workers.iter().filter_map(|worker| worker.cpu_seconds).sum();
    measure(&mut registry, "sessions_memory", "PSS of all sessions' processes", Unit::Bytes, memory);
    measure(&mut registry, "sessions_cpu", "Processor time of all sessions' processes", Unit::Seconds, time);
    if with_sessions {
        add_each(&mut registry, &overview);
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn add_each(registry: &mut Registry, overview: &[SessionOverview]) {
    let (memories, times) =
        (Family::<SessionLabel, Measure>::default(), Family::<SessionLabel, Measure>::default());
    for session in overview {
        let label = SessionLabel { session: session.session.clone() };
        memories.get_or_create(&label).set(memory(session));
        times.get_or_create(&label).set(cpu_time(session));
    }
    registry.register_with_unit("session_memory", "PSS of a session's processes", Unit::Bytes, memories);
    let help = "Processor time of a session's processes";
    registry.register_with_unit("session_cpu", help, Unit::Seconds, times);
}

/// The workers of all sessions, each once: several sessions may share one.
fn distinct_workers(overview: &[SessionOverview]) -> Vec<&WorkerOverview> {
    let mut seen = HashSet::new();
    let workers = overview.iter().flat_map(|session| &session.workers);
    workers.filter(|worker| worker.pid.is_none_or(|pid| seen.insert(pid))).collect()
}

#[allow(clippy::cast_precision_loss, reason = "the format has no other numbers")]
fn memory_of(worker: &WorkerOverview) -> f64 {
    worker.pss_bytes.unwrap_or_default() as f64
}

fn memory(session: &SessionOverview) -> f64 {
    session.workers.iter().map(memory_of).sum()
}

fn cpu_time(session: &SessionOverview) -> f64 {
    session.workers.iter().filter_map(|worker| worker.cpu_seconds).sum()
}
