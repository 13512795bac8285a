//! Remembers the last failure of a server that was logged, so that it is logged once however many sessions meet it.

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<Option<String>>);

impl FailureLog {
    /// Whether a failure differs from the last one. It is the last one from now on.
    pub(crate) fn is_news(&self, failure: &str) -> bool {
        let mut last = self.0.lock();
        if last.as_deref() == Some(failure) {
            return false;
        }
        *last = Some(failure.to_owned());
        true
    }

    /// The server works: its next failure is news, even if it is the same.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_once_until_it_changes_or_the_server_works() {
        let log = FailureLog::default();
        assert!(log.is_news("no key") && !log.is_news("no key"));
        assert!(log.is_news("no program") && log.is_news("no key"));
        log.forget();
        assert!(log.is_news("no key"));
    }
}
