//! The network outside a fence: look-ups and connections. Tests replace the host's network by a scripted one; `egress`
//! decides in both cases what is allowed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

#[derive(Clone, Debug)]
pub(super) enum Outside {
    ThisHost,
    #[cfg(test)]
    Scripted(std::sync::Arc<scripted::Script>),
}

impl Outside {
    /// All addresses of a name.
    pub(super) async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self {
            // The port is not part of the question: it only completes the type.
            Self::ThisHost => Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()),
            #[cfg(test)]
            Self::Scripted(script) => script.look_up(name),
        }
    }

    pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        match self {
            Self::ThisHost => TcpStream::connect(address).await,
            #[cfg(test)]
            Self::Scripted(script) => script.connect(address).await,
        }
    }
}

/// An outside for tests: names have scripted addresses, and connections end at a server of the test.
#[cfg(test)]
pub(super) mod scripted {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use super::{IpAddr, Outside, SocketAddr, TcpStream, io};

    #[derive(Debug, Default)]
    pub(in crate::network) struct Script {
        /// For each name the answers to successive look-ups; the last one repeats.
        names: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
        /// Where connections to an address really go.
        servers: Mutex<HashMap<SocketAddr, SocketAddr>>,
        looked_up: Mutex<Vec<String>>,
        dialled: Mutex<Vec<SocketAddr>>,
    }

    impl Script {
        pub(in crate::network) fn outside(self: &Arc<Self>) -> Outside {
            Outside::Scripted(Arc::clone(self))
        }

        pub(in crate::network) fn name(&self, name: &str, answers: &[&[&str]]) {
            let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
            self.names.lock().unwrap().insert(name.to_owned(), answers.iter().map(parse).collect());
        }

        pub(in crate::network) fn server(&self, address: &str, really: SocketAddr) {
            self.servers.lock().unwrap().insert(address.parse().unwrap(), really);
        }

        pub(in crate::network) fn looked_up(&self) -> Vec<String> {
            self.looked_up.lock().unwrap().clone()
        }

        pub(in crate::network) fn dialled(&self) -> Vec<String> {
            self.dialled.lock().unwrap().iter().map(ToString::to_string).collect()
        }

        pub(super) fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            self.looked_up.lock().unwrap().push(name.to_owned());
            let mut names = self.names.lock().unwrap();
            let answers = names.get_mut(name).ok_or_else(|| io::Error::other("no such name"))?;
            Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
        }

        pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
            self.dialled.lock().unwrap().push(address);
            let really = self.servers.lock().unwrap().get(&address).copied();
            TcpStream::connect(really.ok_or(io::ErrorKind::ConnectionRefused)?).await
        }
    }
}
