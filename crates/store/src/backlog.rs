//! The changes that wait to be written: the newest one of each row, so that the backlog never holds more than there are
//! rows. Pure.

use std::collections::BTreeMap;

use crate::change::{Change, Slot};

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// In the order of sessions, the session's own row before its calls.
    changes: BTreeMap<Slot, Change>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn add(&mut self, change: Change) {
        self.changes.insert(change.slot(), change);
    }

    /// Everything that waits.
    pub(crate) fn take(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes).into_values().collect()
    }

    /// Takes back what could not be written, except for what has changed again meanwhile.
    pub(crate) fn put_back(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.changes.entry(change.slot()).or_insert(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use identity::RecordKey;

    use super::*;
    use crate::change::SessionRow;

    fn session(number: u8, body: &str) -> Change {
        Change::Session(SessionRow { key: RecordKey::from_bytes([number; 32]), body: body.to_owned() })
    }

    fn over(number: u8, stream: u64) -> Change {
        Change::CallOver { session: RecordKey::from_bytes([number; 32]), stream }
    }

    #[test]
    fn the_newest_change_of_a_row_counts() {
        let mut backlog = Backlog::default();
        for change in [session(1, "a"), session(2, "b"), session(1, "c"), over(1, 7), over(1, 7)] {
            backlog.add(change);
        }
        assert_eq!(backlog.take(), [session(1, "c"), over(1, 7), session(2, "b")]);
        assert!(backlog.is_empty());
    }

    #[test]
    fn what_could_not_be_written_does_not_undo_what_came_later() {
        let mut backlog = Backlog::default();
        backlog.add(session(1, "new"));
        backlog.put_back(vec![session(1, "old"), session(2, "old")]);
        assert_eq!(backlog.take(), [session(1, "new"), session(2, "old")]);
    }
}
