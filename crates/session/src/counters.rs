//! Counts and times of what happened, for the health report and for Prometheus.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::EndReason;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(Counter);

impl Count {
    pub(crate) fn add(&self) {
        self.0.inc();
    }

    /// Counts, and says whether to log this one: the first few, then one in a thousand, so that their cause cannot
    /// flood the log.
    pub fn add_and_should_log(&self) -> bool {
        let before = self.0.inc();
        before < 20 || before.is_multiple_of(1000)
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A distribution of durations.
#[derive(Debug)]
pub(crate) struct Times(Histogram);

impl Default for Times {
    /// From a quarter of a millisecond to two minutes.
    fn default() -> Self {
        let bounds = [
            0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0, 60.0, 120.0,
        ];
        Self(Histogram::new(bounds))
    }
}

impl Times {
    pub(crate) fn observe(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// A number for each reason.
#[derive(Debug, Default)]
pub struct CountByReason(Family<ReasonLabel, Counter>);

impl CountByReason {
    pub fn add(&self, reason: &'static str) {
        self.0.get_or_create(&ReasonLabel { reason }).inc();
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    /// Grows at least every second, as deadlines are looked at, unless the gateway is stuck.
    pub beats: Count,
    pub sessions_opened: Count,
    /// Those of an earlier gateway that their clients came back to.
    pub sessions_restored: Count,
    pub sessions_ended: Count,
    pub(crate) ends: CountByReason,
    /// Refusals toward clients and fences, by reason.
    pub denials: CountByReason,
    /// Connections from inside fences.
    pub fenced_peers: Count,
    pub calls: Count,
    pub call_errors: Count,
    pub timeouts: Count,
    pub worker_starts: Count,
    pub worker_restarts: Count,
    pub worker_deaths: Count,
    /// Answers to requests that had been given up or answered before.
    pub late_answers: Count,
    /// Answers to ids that were never sent, from either side: detects cross-talk.
    pub stray_answers: Count,
    /// Lines of an upstream that are no JSON-RPC message, or too long.
    pub bad_lines: Count,
    /// Notifications of an upstream without an owner, or dropped by a full stream.
    pub dropped_notifications: Count,
    /// Requests of a shared upstream that belong to no client.
    pub unattributed_requests: Count,
    /// From the client's request to its answer.
    pub(crate) call_times: Times,
    /// From `initialize` to the locked scope.
    pub(crate) lock_times: Times,
    /// How long requests waited for the scope.
    pub(crate) queue_waits: Times,
    /// From the start of a worker to its answer to `initialize`.
    pub(crate) start_times: Times,
}

impl Counters {
    /// Name and value of each count, in a fixed order.
    pub fn list(&self) -> [(&'static str, u64); 14] {
        [
            ("sessions_opened", self.sessions_opened.get()),
            ("sessions_restored", self.sessions_restored.get()),
            ("sessions_ended", self.sessions_ended.get()),
            ("calls", self.calls.get()),
            ("call_errors", self.call_errors.get()),
            ("timeouts", self.timeouts.get()),
            ("worker_starts", self.worker_starts.get()),
            ("worker_restarts", self.worker_restarts.get()),
            ("worker_deaths", self.worker_deaths.get()),
            ("late_answers", self.late_answers.get()),
            ("stray_answers", self.stray_answers.get()),
            ("bad_lines", self.bad_lines.get()),
            ("dropped_notifications", self.dropped_notifications.get()),
            ("unattributed_requests", self.unattributed_requests.get()),
        ]
    }

    pub(crate) fn session_ended(&self, reason: EndReason) {
        self.sessions_ended.add();
        self.ends.add(reason.as_str());
    }

    /// Registers all metrics, under names that do not change.
    pub fn register(&self, registry: &mut Registry, upstream: &str) {
        let counts: [(&str, &str, &Count); 14] = [
            ("session_creations", "Sessions opened", &self.sessions_opened),
            ("session_restorations", "Sessions of an earlier gateway that went on", &self.sessions_restored),
            ("sessions_closed", "Sessions ended", &self.sessions_ended),
            ("calls", "Requests of clients", &self.calls),
            ("call_errors", "Requests answered with an error", &self.call_errors),
            ("call_timeouts", "Requests given up", &self.timeouts),
            ("worker_starts", "Processes of MCP servers started", &self.worker_starts),
            ("worker_restarts", "Of these, in place of one that died", &self.worker_restarts),
            ("worker_deaths", "Processes of MCP servers that ended by themselves", &self.worker_deaths),
            ("late_answers", "Answers that came too late or twice", &self.late_answers),
            ("stray_answers", "Answers to what was never asked (cross-talk)", &self.stray_answers),
            ("bad_lines", "Lines of MCP servers that are no message", &self.bad_lines),
            (
                "dropped_notifications",
                "Notifications without a receiver or room",
                &self.dropped_notifications,
            ),
            (
                "unattributed_requests",
                "Requests of shared MCP servers without an owner",
                &self.unattributed_requests,
            ),
        ];
        for (name, help, count) in counts {
            registry.register(name, help, count.0.clone());
        }
        registry.register("session_ends", "Sessions ended, by reason", self.ends.0.clone());
        registry.register("denials", "What was refused, by reason", self.denials.0.clone());
        let times: [(&str, &str, &Times); 3] = [
            ("scope_lock", "From initialize to the locked scope", &self.lock_times),
            ("queue_wait", "What requests waited for the scope", &self.queue_waits),
            (
                "worker_start",
                "From the start of an MCP server to its answer to initialize",
                &self.start_times,
            ),
        ];
        for (name, help, time) in times {
            registry.register_with_unit(name, help, Unit::Seconds, time.0.clone());
        }
        let labelled = registry.sub_registry_with_label(("upstream".into(), upstream.to_owned().into()));
        let help = "From a request of a client to its answer";
        labelled.register_with_unit("call_latency", help, Unit::Seconds, self.call_times.0.clone());
    }
}
