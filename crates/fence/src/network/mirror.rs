//! Mirrored ports: a connection to a listener inside the fence is joined to the same port of the host's
//! loopback. The operator names the ports; the program cannot choose another one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::connections::{Slots, serve_each};
use super::splice::splice;

/// On loopback a handshake is immediate, unless the server's queue is full.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

pub(super) async fn serve(listener: TcpListener, slots: Slots, port: u16) {
    serve_each(listener, slots, |client| join(client, port)).await;
}

async fn join(client: TcpStream, port: u16) {
    // No idle deadline: clients of databases keep quiet connections for hours, and as both ends are on this
    // machine the kernel tells when one is gone.
    let joined = async {
        let server = connect_to_loopback(port).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        splice(client, b"", server, None).await
    };
    if let Err(error) = joined.await {
        tracing::debug!(port, %error, "a connection to a mirrored port ended");
    }
}

async fn connect_to_loopback(port: u16) -> io::Result<TcpStream> {
    let addresses = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(CONNECT_DEADLINE, TcpStream::connect((address, port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}
