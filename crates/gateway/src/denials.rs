//! Counts denied requests, so that clients with stale tokens slow down and the logs stay short.

use session::Count;

use crate::failed_attempts::FailedAttempts;

#[derive(Debug, Default)]
pub(crate) struct Denials {
    pub(crate) attempts: FailedAttempts,
    count: Count,
}

impl Denials {
    /// Counts a denial. Returns true for the first few and then for one in a thousand, so that a caller cannot flood
    /// the logs.
    pub(crate) fn add_and_should_log(&self) -> bool {
        self.count.add_and_should_log()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_thinned_after_the_first_denials() {
        let denials = Denials::default();
        let logged = (0..3000).filter(|_| denials.add_and_should_log()).count();
        assert_eq!(logged, 22);
    }
}
