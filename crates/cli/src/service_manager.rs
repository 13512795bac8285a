//! What systemd hears of a gateway (`sd_notify(3)`): that it is ready, how many sessions there are, that it goes on with
//! another program or stops, and that it is not stuck.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use session::Sessions;

/// How often the number of sessions is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long deadlines may go without being looked at before the gateway counts as stuck: several of the slowest beats.
const STUCK_AFTER: Duration = Duration::from_secs(3);

/// Where the service manager of this process listens.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// It wants to hear from this process this often.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// `None` if no service manager started this process.
    pub(crate) fn of_environment() -> Option<Arc<Self>> {
        let variable = |name: &str| std::env::var(name).ok();
        let path = variable("NOTIFY_SOCKET").filter(|path| !path.is_empty())?;
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&path),
        };
        let opened = address.and_then(|address| Ok((UnixDatagram::unbound()?, address)));
        let warn = |error| tracing::warn!("NOTIFY_SOCKET={path} cannot be used: {error}");
        let (socket, address) = opened.map_err(warn).ok()?;
        let own = std::process::id().to_string();
        let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let watchdog = variable("WATCHDOG_USEC").filter(|_| is_ours).and_then(|text| text.parse().ok());
        let watchdog = watchdog.filter(|micros| *micros > 0).map(Duration::from_micros);
        Some(Arc::new(Self { socket, address, watchdog }))
    }

    pub(crate) fn ready(&self, sessions: &Sessions) {
        self.tell(&format!("READY=1\nSTATUS={}", status(sessions)));
    }

    pub(crate) fn upgrading(&self) {
        self.tell("RELOADING=1\nSTATUS=another program takes over");
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// A service manager that does not listen has its reasons, and the gateway goes on.
    fn tell(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::debug!("the service manager was not told {state:?}: {error}");
        }
    }

    /// Tells changes, and that deadlines are still being looked at, which a stuck gateway does not do.
    pub(crate) async fn follow(self: Arc<Self>, sessions: Arc<Sessions>) {
        let pause = self.watchdog.map_or(LOOK_EVERY, |watchdog| LOOK_EVERY.min(watchdog / 3));
        let (mut told, mut beats, mut beaten) = (String::new(), 0, Instant::now());
        loop {
            tokio::time::sleep(pause).await;
            let now = sessions.counters().beats.get();
            if beats != now {
                (beats, beaten) = (now, Instant::now());
            }
            if self.watchdog.is_some() && beaten.elapsed() < STUCK_AFTER {
                self.tell("WATCHDOG=1");
            }
            let now = status(&sessions);
            if now != told && !sessions.is_closing() {
                self.tell(&format!("STATUS={now}"));
                told = now;
            }
        }
    }
}

fn status(sessions: &Sessions) -> String {
    format!("{} sessions, {} more that wait for their clients", sessions.count(), sessions.count_dormant())
}
