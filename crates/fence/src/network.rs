//! The network of a program whose only interface is a private loopback: an HTTP proxy, a DNS answerer and
//! mirrored ports of the host's loopback. The launcher makes the [`Listeners`] inside the fence's network
//! namespace; [`serve`] accepts on them and dials from the host's.
//!
//! A request goes through `request_head` (what is asked), [`AllowedHosts`] (may the host be reached),
//! `egress` (resolve once, check every address, dial a checked one) and `splice` (carry the bytes).

mod address;
mod connections;
mod dns;
mod egress;
mod hosts;
mod interfaces;
mod mirror;
mod outside;
mod proxy;
mod refusals;
mod request_body;
mod request_head;
mod sentence;
mod splice;

#[cfg(test)]
mod end_to_end;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

pub(crate) use self::hosts::AllowedHosts;
pub use self::hosts::{HostPattern, HostPatternError};
pub(crate) use self::sentence::network_sentence;
pub use self::sentence::{ProxyReach, proxy_reach};

use self::connections::Slots;
use self::egress::Egress;

/// The port on 127.0.0.1, inside the fence, on which the launcher makes the proxy's listener.
pub(crate) const PROXY_PORT: u16 = 3128;

/// The address inside the fence on which the launcher makes the DNS socket, and which it writes into the
/// program's `resolv.conf`.
pub(crate) const DNS_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 53), 53);

/// The listeners that a launcher made inside a fence.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Takes CONNECT and plain HTTP requests; the program finds it by [`proxy_environment`].
    pub proxy: Option<std::net::TcpListener>,
    /// Takes name queries; the program finds it by its `resolv.conf`.
    pub dns: Option<std::net::UdpSocket>,
    /// Each stands for the named port of the host's loopback. A port may occur twice: for 127.0.0.1 and
    /// for `::1` inside.
    pub mirrored: Vec<(u16, std::net::TcpListener)>,
}

impl Listeners {
    pub fn is_empty(&self) -> bool {
        self.proxy.is_none() && self.dns.is_none() && self.mirrored.is_empty()
    }
}

/// Serves the listeners of one fence. Ends only with an error, or at once if there is no listener at all;
/// to stop it, drop it: every connection that it carries ends with it.
///
/// It spawns tasks on the current tokio runtime, and carries at most 256 connections at a time; more wait.
pub(crate) async fn serve(listeners: Listeners, hosts: AllowedHosts) -> io::Result<()> {
    serve_through(listeners, Egress::from_this_host(hosts)).await
}

/// Environment variables by which a program inside the fence finds the proxy.
///
/// `NO_PROXY` is set and empty, because a value of the caller would send programs to addresses that have no
/// route here. Node looks at the others only with `NODE_USE_ENV_PROXY`.
pub(crate) fn proxy_environment() -> Vec<(&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let for_proxy = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let mut variables: Vec<_> = for_proxy.into_iter().map(|name| (name, proxy.clone())).collect();
    variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name, String::new())));
    variables.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    variables
}

/// As [`serve`]; tests bring an egress whose outside is scripted.
async fn serve_through(listeners: Listeners, egress: Egress) -> io::Result<()> {
    let egress = Arc::new(egress);
    let slots = Slots::default();
    let mut services = JoinSet::new();
    if let Some(listener) = listeners.proxy {
        services.spawn(proxy::serve(into_tokio_listener(listener)?, slots.clone(), Arc::clone(&egress)));
    }
    if let Some(socket) = listeners.dns {
        socket.set_nonblocking(true)?;
        services.spawn(dns::serve(UdpSocket::from_std(socket)?, egress));
    }
    for (port, listener) in listeners.mirrored {
        services.spawn(mirror::serve(into_tokio_listener(listener)?, slots.clone(), port));
    }
    match services.join_next().await {
        // None of them ends by itself: one that did has panicked.
        Some(ended) => ended.map_err(io::Error::other),
        None => Ok(()),
    }
}

fn into_tokio_listener(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_proxy_in_both_cases() {
        let variables = proxy_environment();
        let value = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
        };
        for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(value(name), Some("http://127.0.0.1:3128"));
        }
        assert_eq!(value("NO_PROXY"), Some(""));
        assert_eq!(value("no_proxy"), Some(""));
        assert_eq!(value("NODE_USE_ENV_PROXY"), Some("1"));
        assert_eq!(variables.len(), 9);
    }

    #[tokio::test]
    async fn serving_nothing_ends_at_once() {
        serve(Listeners::default(), AllowedHosts::Any).await.unwrap();
    }
}
