//! The sockets that a gateway listens on: its own, or those that were passed to it by a service manager or by the
//! program that it took the place of.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::net::lookup_host;

use crate::error::Error;

/// Where a gateway listens unless something else is said.
const USUAL_HOST: &str = "127.0.0.1";
const USUAL_PORT: u16 = 3000;

/// `--host` and `--port`, as far as they were given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) host: Option<&'a str>,
    pub(crate) port: Option<u16>,
}

/// The sockets of a gateway, or where to open one.
#[derive(Debug)]
pub(crate) enum Listening {
    At(SocketAddr),
    On(Vec<TcpListener>),
}

/// Why a gateway cannot use what was passed to it.
#[derive(Debug)]
pub(crate) enum PassedSocketError {
    /// No listening TCP socket.
    Kind(&'static str),
    /// The command line names another address.
    OtherAddress { passed: SocketAddr, option: String },
}

impl PassedSocketError {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Kind(_) => {
                "write ListenStream=127.0.0.1:3000 or the like in the socket unit, and Accept=no"
            }
            Self::OtherAddress { .. } => {
                "leave out --host and --port: the socket unit says where the gateway listens (ListenStream=)"
            }
        }
    }
}

impl fmt::Display for PassedSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => {
                write!(f, "a socket was passed (LISTEN_FDS) that is {kind}; a listening TCP socket is needed")
            }
            Self::OtherAddress { passed, option } => {
                write!(
                    f,
                    "the socket that was passed (LISTEN_FDS) listens on {passed}, which is not {option}"
                )
            }
        }
    }
}

impl Listening {
    /// Takes the sockets that were passed, if there are any.
    pub(crate) async fn of(wanted: Wanted<'_>, passed: Vec<OwnedFd>) -> Result<Self, Error> {
        if passed.is_empty() {
            let addresses = wanted.addresses().await?;
            let host = || wanted.host().to_owned();
            let first = addresses.first().copied();
            let nothing = || Error::UnknownHost { host: host(), reason: std::io::ErrorKind::NotFound.into() };
            return first.map(Self::At).ok_or_else(nothing);
        }
        let listeners = passed.into_iter().map(vetted).collect::<Result<Vec<_>, _>>()?;
        wanted.check(&listeners).await?;
        Ok(Self::On(listeners))
    }

    pub(crate) fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Self::At(address) => Ok(vec![*address]),
            Self::On(listeners) => listeners.iter().map(TcpListener::local_addr).collect(),
        }
    }

    pub(crate) async fn open(self) -> Result<Vec<tokio::net::TcpListener>, Error> {
        match self {
            Self::At(address) => {
                let bound = tokio::net::TcpListener::bind(address).await;
                Ok(vec![bound.map_err(|reason| Error::Bind { address, reason })?])
            }
            Self::On(listeners) => {
                let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std);
                Ok(listeners.collect::<std::io::Result<_>>()?)
            }
        }
    }
}

impl Wanted<'_> {
    fn host(&self) -> &str {
        self.host.unwrap_or(USUAL_HOST)
    }

    /// Whether the operator left the port open.
    pub(crate) fn is_any_port(&self) -> bool {
        self.port == Some(0)
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let host = self.host().trim_start_matches('[').trim_end_matches(']');
        let found = lookup_host((host, self.port.unwrap_or(USUAL_PORT))).await;
        let unknown = |reason| Error::UnknownHost { host: self.host().to_owned(), reason };
        Ok(found.map_err(unknown)?.collect())
    }

    /// Refuses sockets at another address than the command line names. Where it names none, any will do.
    async fn check(&self, listeners: &[TcpListener]) -> Result<(), Error> {
        let hosts = if self.host.is_some() { self.addresses().await? } else { Vec::new() };
        for listener in listeners {
            let passed = listener.local_addr()?;
            let is_host = |wanted: &SocketAddr| wanted.ip().to_canonical() == passed.ip().to_canonical();
            if self.host.is_some() && !hosts.iter().any(is_host) {
                let option = format!("--host {}", self.host());
                return Err(PassedSocketError::OtherAddress { passed, option }.into());
            }
            if let Some(port) = self.port.filter(|port| *port != 0 && *port != passed.port()) {
                let option = format!("--port {port}");
                return Err(PassedSocketError::OtherAddress { passed, option }.into());
            }
        }
        Ok(())
    }
}

/// Makes sure that it is a TCP socket that listens.
fn vetted(socket: OwnedFd) -> Result<TcpListener, Error> {
    let kind = kind_of(socket.as_fd()).map_err(|_| PassedSocketError::Kind("no socket"))?;
    if let Some(kind) = kind {
        return Err(PassedSocketError::Kind(kind).into());
    }
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What makes a socket unusable.
fn kind_of(socket: impl AsFd) -> rustix::io::Result<Option<&'static str>> {
    let family = sockopt::socket_domain(&socket)?;
    Ok(if family == AddressFamily::UNIX {
        Some("a unix socket")
    } else if family != AddressFamily::INET && family != AddressFamily::INET6 {
        Some("of another kind")
    } else if sockopt::socket_type(&socket)? != SocketType::STREAM {
        Some("a datagram socket")
    } else if !sockopt::socket_acceptconn(&socket)? {
        Some("a connection")
    } else {
        None
    })
}
