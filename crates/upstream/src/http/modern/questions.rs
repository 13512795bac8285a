//! The questions of the server that the caller has not answered yet.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

use tokio::sync::mpsc;
use wire::Id;

use crate::http::outgoing_line::Line;

/// The open questions. Their number is bounded by the running calls and the questions that each may ask at once.
#[derive(Default)]
pub(crate) struct Questions(Mutex<HashMap<Id, Question>>);

struct Question {
    /// The call that waits for the answer.
    call: Id,
    /// The call's receiver. The line counts toward the load until the call has taken it.
    answers: mpsc::UnboundedSender<(Id, Line)>,
}

impl Questions {
    /// Registers a question; its answer will be sent to `answers` once.
    pub(super) fn open(&self, id: Id, call: Id, answers: mpsc::UnboundedSender<(Id, Line)>) {
        self.all().insert(id, Question { call, answers });
    }

    /// Hands an answer of the caller to the call that waits for it.
    pub(crate) fn answer(&self, id: &Id, line: Line) {
        if let Some(question) = self.all().remove(id) {
            // It fails if the call has just ended.
            let _ = question.answers.send((id.clone(), line));
        } else {
            tracing::debug!(?id, "dropping an answer to an unknown question");
        }
    }

    /// Removes the open questions of a call and returns their ids.
    pub(super) fn withdraw(&self, call: &Id) -> Vec<Id> {
        let mut all = self.all();
        let open: Vec<Id> =
            all.iter().filter(|(_, question)| question.call == *call).map(|(id, _)| id.clone()).collect();
        for id in &open {
            all.remove(id);
        }
        open
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Id, Question>> {
        self.0.lock()
    }
}
