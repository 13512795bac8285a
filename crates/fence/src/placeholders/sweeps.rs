//! When placeholders are removed: at once when a session ends, or a moment later in a gateway, whose sessions often follow
//! one another in the same scope.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Longer than a client takes to open its next session, and short for a user who wants one of the names.
const LINGER: Duration = Duration::from_secs(1);

/// Decides when those that no session needs are removed.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    state: Mutex<State>,
    is_over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_lingering: bool,
    /// A thread waits to sweep.
    is_pending: bool,
}

impl Sweeps {
    /// Sweeps now, or soon, because a session has ended.
    pub(crate) fn session_ended(self: &Arc<Self>, own: &Path) {
        let mut state = self.state.lock();
        if state.is_lingering && state.is_pending {
            return;
        }
        if state.is_lingering {
            let (sweeps, own) = (Arc::clone(self), own.to_owned());
            let thread = std::thread::Builder::new().name("placeholders".to_owned());
            state.is_pending = thread.spawn(move || sweeps.sweep_later(&own)).is_ok();
            if state.is_pending {
                return;
            }
        }
        drop(state);
        super::sweep(own);
    }

    fn sweep_later(&self, own: &Path) {
        let mut state = self.state.lock();
        self.is_over.wait_while_for(&mut state, |state| state.is_lingering, LINGER);
        state.is_pending = false;
        drop(state);
        super::sweep(own);
    }
}

/// Placeholders stay a moment longer than their sessions as long as this lives. Dropping it removes them.
#[derive(Debug)]
pub struct LingeringPlaceholders {
    sweeps: Arc<Sweeps>,
    own: PathBuf,
}

impl LingeringPlaceholders {
    pub(crate) fn begin(sweeps: &Arc<Sweeps>, own: &Path) -> Self {
        sweeps.state.lock().is_lingering = true;
        Self { sweeps: Arc::clone(sweeps), own: own.to_owned() }
    }
}

impl Drop for LingeringPlaceholders {
    fn drop(&mut self) {
        self.sweeps.state.lock().is_lingering = false;
        self.sweeps.is_over.notify_all();
        super::sweep(&self.own);
    }
}
