//! Goes on with a session that an earlier gateway had: vets its scope by today's rules, and tells the client what may have
//! changed.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};
use wire::{Text, method};

use super::{Session, locking};
use crate::client::{Prefer, Restored, take_over};
use crate::durable::StoredCall;
use crate::gate::GateEvent;
use crate::handshake;
use crate::list::List;
use crate::lost_call::LostCall;
use crate::stored::StoredScope;
use crate::stream::Keep;

/// The logger of what the gateway itself tells clients.
const LOGGER: &str = "ringfence";

/// Takes over what an earlier gateway left. Requests wait until the scope is vetted again; a session that had none yet
/// asks its client as a new one does.
pub(crate) fn resume(session: &Arc<Session>, scope: Option<StoredScope>, calls: Vec<(u64, StoredCall)>) {
    let is_lost = |stored: &StoredCall| stored.answer.is_none();
    let lost: Vec<LostCall> =
        calls.iter().filter(|(_, it)| is_lost(it)).map(|(_, it)| it.call.clone()).collect();
    let epoch = session.client.record().epoch;
    let streams = calls.into_iter().map(|(number, stored)| (number, stored.into_answer())).collect();
    take_over(&session.client, streams, Restored { epoch, lost: lost.clone() });
    // A client that never said it will not say it now.
    session.handshake.finish(&Bytes::from_static(handshake::INITIALIZED));
    let Some(scope) = scope else { return session.step_gate(GateEvent::Initialized, Instant::now()) };
    session.step_gate(GateEvent::Restoring, Instant::now());
    let session = Arc::clone(session);
    Arc::clone(&session.context).tasks.spawn(async move {
        let rights = Arc::clone(session.rights());
        let vetted = session.context.look_at_files(move |rules| rules.of_restored(&scope, &rights)).await;
        let locked = match vetted {
            Ok(scope) => session.lock_scope(scope).await,
            Err(refusal) => Err(refusal),
        };
        match locked {
            Ok(()) => announce(&session, &lost),
            Err(refusal) => locking::refuse(&session, &refusal).await,
        }
    });
}

impl StoredCall {
    /// What the client finds on the stream of the call.
    fn into_answer(self) -> Text {
        match self.answer {
            Some(answer) => Bytes::from(answer).into(),
            None => self.call.answer(),
        }
    }
}

/// Tells the client to look again at everything that may be different in the new processes.
fn announce(session: &Session, lost: &[LostCall]) {
    let record = session.client.record().clone();
    let capabilities = capabilities_of(record.answer.as_deref().unwrap_or_default());
    let tell = |method: &str, params: Value| {
        let news = Bytes::from(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
        session.client.deliver(news.into(), Keep::IfRoom, Prefer::Standalone);
    };
    if capabilities["logging"].is_object() {
        let text = "The gateway was restarted. The session goes on with new server processes, which know nothing of \
                    what their predecessors held in memory.";
        let data =
            json!({ "message": text, "reason": "gateway_restarted", "epoch": record.epoch, "lost": lost });
        tell(method::LOG_MESSAGE, json!({ "level": "warning", "logger": LOGGER, "data": data }));
    }
    for list in [List::Tools, List::Prompts, List::Resources] {
        if capabilities[list.field()]["listChanged"] == true {
            tell(list.change(), json!({}));
        }
    }
    for subscription in &record.subscriptions {
        tell(method::RESOURCE_UPDATED, json!({ "uri": subscription.uri }));
    }
}

fn capabilities_of(answer: &str) -> Value {
    let mut answer: Value = serde_json::from_str(answer).unwrap_or_default();
    answer["capabilities"].take()
}
