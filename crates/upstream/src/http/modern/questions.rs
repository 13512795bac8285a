//! What our user is asked in the server's name, and what it answers.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

use tokio::sync::mpsc;
use wire::Id;

use crate::http::line::Line;

/// The questions that are open. Their number is bounded by the calls that run and by what each may ask at once.
#[derive(Default)]
pub(crate) struct Questions(Mutex<HashMap<Id, Question>>);

struct Question {
    /// The call that waits for the answer.
    call: Id,
    /// Where it waits. The line stays accounted for until the call has taken it.
    answers: mpsc::UnboundedSender<(Id, Line)>,
}

impl Questions {
    /// The answer to `id` will come to `answers`, once.
    pub(super) fn open(&self, id: Id, call: Id, answers: mpsc::UnboundedSender<(Id, Line)>) {
        self.all().insert(id, Question { call, answers });
    }

    /// Hands an answer of our user to the call that waits for it.
    pub(crate) fn answer(&self, id: &Id, line: Line) {
        if let Some(question) = self.all().remove(id) {
            // The call may have ended just now.
            let _ = question.answers.send((id.clone(), line));
        } else {
            tracing::debug!(?id, "an answer to nothing that was asked is dropped");
        }
    }

    /// Forgets what a call asked and nobody answered yet.
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
