//! What a service manager hears of a gateway.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use testkit::{Gateway, wait_until};

use super::{Site, upgraded};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(address: &SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    /// Waits for a message with this line. Returns the message.
    async fn hears(&self, line: &str) -> String {
        let mut heard = None;
        wait_until(line, async || {
            let mut buffer = [0; 4096];
            while let Ok(length) = self.0.recv(&mut buffer) {
                let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
                if text.lines().any(|found| found == line) {
                    heard = Some(text);
                    return true;
                }
            }
            false
        })
        .await;
        heard.unwrap()
    }
}

async fn tells_everything(address: SocketAddr, name: &str) {
    let manager = Manager::listen(&address);
    let mut site = Site::new("notified");
    let builder = Gateway::builder().env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "600000");
    let mut gateway = site.start(builder).await;
    let ready = manager.hears("READY=1").await;
    assert!(ready.contains("STATUS=0 sessions"), "{ready}");
    manager.hears("WATCHDOG=1").await;
    let _client = gateway.open().await;
    manager.hears("STATUS=1 sessions, 0 more that wait for their clients").await;
    upgraded(&gateway).await;
    manager.hears("RELOADING=1").await;
    let ready = manager.hears("READY=1").await;
    assert!(ready.contains("STATUS=0 sessions, 1 more that wait"), "{ready}");
    manager.hears("WATCHDOG=1").await;
    gateway.terminate().await;
    manager.hears("STOPPING=1").await;
}

#[tokio::test]
async fn readiness_sessions_upgrades_and_the_end_are_told() {
    let path = std::env::temp_dir().join(format!("ringfence-notify-{}", std::process::id()));
    tells_everything(SocketAddr::from_pathname(&path).unwrap(), path.to_str().unwrap()).await;
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_socket_without_a_file_is_told_the_same() {
    let name = format!("ringfence-notify-{}", std::process::id());
    tells_everything(SocketAddr::from_abstract_name(&name).unwrap(), &format!("@{name}")).await;
}

#[tokio::test]
async fn a_service_manager_that_does_not_listen_changes_nothing() {
    let gateway = Gateway::builder().env("NOTIFY_SOCKET", "/nonexistent/notify").start().await;
    gateway.open().await;
}
