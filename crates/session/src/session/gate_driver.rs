//! Gives the [`Gate`](crate::gate::Gate) its events and performs what it says.

use std::sync::Arc;
use std::time::Instant;

use upstream::StartError;

use super::{Session, locking};
use crate::client::RootsPurpose;
use crate::gate::{GateAction, GateEvent, Queued};
use crate::route::Route;

impl Session {
    /// Takes a call: to its route, or to wait until there is one.
    pub(super) fn submit(self: &Arc<Self>, queued: Queued) {
        if let Some(route) = self.route() {
            return route.call(queued.call, queued.request);
        }
        let standalone = self.client.standalone();
        let mut gate = self.gate.lock();
        if let Some(route) = self.route() {
            drop(gate);
            return route.call(queued.call, queued.request);
        }
        // A session that ended meanwhile has answered the call.
        if self.has_ended() {
            return;
        }
        let actions = gate.step(GateEvent::Call(queued), &standalone, Instant::now());
        drop(gate);
        self.perform_gate(actions);
    }

    /// Gives the gate an event and performs what follows.
    pub(super) fn step_gate(self: &Arc<Self>, event: GateEvent, now: Instant) {
        let standalone = self.client.standalone();
        let actions = self.gate.lock().step(event, &standalone, now);
        self.perform_gate(actions);
    }

    fn perform_gate(self: &Arc<Self>, actions: Vec<GateAction>) {
        for action in actions {
            match action {
                GateAction::RequestRoots(stream) => {
                    self.client.request_roots(Some(stream), RootsPurpose::Lock);
                }
                GateAction::Vet(answer) => locking::vet(self, answer),
                GateAction::Release(queue) => {
                    if let Some(route) = self.route() {
                        release(route, queue, self);
                    }
                }
                GateAction::Fail(calls, reply) => {
                    tracing::warn!(session = %self.handle(), "{}", reply.message);
                    for call in calls {
                        call.fail(&reply);
                    }
                }
                GateAction::RefuseOverflow(call) => call.fail(&StartError::TooManyWaiting.reply()),
                GateAction::IgnoreLateAnswer => {
                    tracing::info!(session = %self.handle(), "one more answer to roots/list; the first one counts");
                }
            }
        }
    }
}

/// Hands waiting requests over, in their order.
pub(super) fn release(route: &Route, queue: Vec<Queued>, session: &Session) {
    for Queued { call, request } in queue {
        session.context.counters.queue_waits.observe(call.began.elapsed());
        route.call(call, request);
    }
}
