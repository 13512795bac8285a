//! The report that a gateway gives of itself at `/ready`.

use serde_json::Value;

use crate::gateway::Gateway;
use crate::waiting::wait_until;

impl Gateway {
    /// The whole report; panics if the gateway is not ready.
    pub async fn report(&self) -> Value {
        let reply = self.client().get_stream(None).path("/ready").await;
        assert_eq!(reply.status, 200, "the gateway is not ready: {:?}", reply.body);
        reply.json().clone()
    }

    /// One of the counters in the report.
    pub async fn counter(&self, name: &str) -> u64 {
        let report = self.report().await;
        report["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {report}"))
    }

    /// Waits until the probe has ended: the process that a gateway without `--shared` starts once by itself to
    /// learn its server's answer to `initialize`.
    pub async fn wait_for_probe(&self) {
        wait_until("the server was tried", async || self.counter("worker_starts").await > 0).await;
        wait_until("the trial is over", async || self.descendants().is_empty()).await;
    }

    /// How many sessions are open.
    pub async fn open_sessions(&self) -> u64 {
        let report = self.report().await;
        report["sessions"].as_u64().unwrap_or_else(|| panic!("no sessions in {report}"))
    }
}
