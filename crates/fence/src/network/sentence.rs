//! The sentence that a report says of a network, and what it tells of a host: it is all that a process inside a fence
//! knows of its network.

use super::address::{Reach, reach_of};
use super::hosts::{AllowedHosts, Grant, Host};
use crate::policy::Network;

const THROUGH_PROXY: &str = "http: HTTP and HTTPS through the proxy to ";
const ANY_HOST: &str = "any public host";
const NOTHING_ELSE: &str = "; programs that ignore the proxy reach nothing";

/// What the proxy of a fence does with a host, as far as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyReach {
    /// Dials it, unless its name leads to an address that is not public.
    Dials,
    /// Would dial it if the list of hosts named it.
    NotListed,
    /// Would dial it if there were a list of hosts that named it.
    NotPublic,
    /// Dials it in no case.
    Never,
}

/// The sentence that may be said of a network mode.
pub(crate) fn network_sentence(network: &Network) -> String {
    let ports = |ports: &[u16]| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match network {
        Network::All => {
            "all: not restricted; host loopback, local network and cloud metadata are reachable".to_owned()
        }
        Network::None => "none: no network".to_owned(),
        Network::Localhost { ports: list } if list.is_empty() => "localhost: a private loopback".to_owned(),
        Network::Localhost { ports: list } => {
            format!("localhost: a private loopback plus these ports of the host: {}", ports(list))
        }
        Network::Http { hosts } => {
            let hosts = hosts.as_ref().map_or_else(|| ANY_HOST.to_owned(), |hosts| hosts.join(", "));
            format!("{THROUGH_PROXY}{hosts}{NOTHING_ELSE}")
        }
        Network::Ports { ports: list } => format!(
            "ports: TCP to port {} of any address including loopback; no UDP, so no DNS but over TCP",
            ports(list)
        ),
    }
}

/// What the proxy does with a host, if the sentence is that of a network with a proxy.
pub fn proxy_reach(sentence: &str, host: &str) -> Option<ProxyReach> {
    let listed = sentence.strip_prefix(THROUGH_PROXY)?.strip_suffix(NOTHING_ELSE)?;
    let hosts = match listed {
        ANY_HOST => AllowedHosts::Any,
        list => AllowedHosts::Only(list.split(", ").filter_map(|host| host.parse().ok()).collect()),
    };
    let unlisted = if listed == ANY_HOST { ProxyReach::NotPublic } else { ProxyReach::NotListed };
    let Ok(host) = host.parse::<Host>() else { return Some(ProxyReach::Never) };
    let is_public = match &host {
        Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
            return Some(ProxyReach::Never);
        }
        Host::Name(_) => true,
        Host::Address(address) => match reach_of(*address, &[]) {
            Reach::Forbidden(_) => return Some(ProxyReach::Never),
            Reach::Private(_) => false,
            Reach::Public => true,
        },
    };
    Some(match hosts.grant(&host) {
        Ok(Grant::ByName) => ProxyReach::Dials,
        Ok(Grant::InGeneral) if is_public => ProxyReach::Dials,
        Ok(Grant::InGeneral) | Err(_) => unlisted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_tells_what_the_proxy_dials() {
        let listed = ["registry.example", "*.example.org", "10.0.0.5"].map(str::to_owned).to_vec();
        let only = network_sentence(&Network::Http { hosts: Some(listed) });
        let any = network_sentence(&Network::Http { hosts: None });
        for (sentence, host, expected) in [
            (&only, "registry.example", ProxyReach::Dials),
            (&only, "a.example.org", ProxyReach::Dials),
            (&only, "10.0.0.5", ProxyReach::Dials),
            (&only, "example.org", ProxyReach::NotListed),
            (&only, "10.0.0.6", ProxyReach::NotListed),
            (&only, "127.0.0.1", ProxyReach::Never),
            (&any, "registry.example", ProxyReach::Dials),
            (&any, "10.0.0.5", ProxyReach::NotPublic),
            (&any, "printer", ProxyReach::NotPublic),
            (&any, "localhost", ProxyReach::Never),
            (&any, "169.254.169.254", ProxyReach::Never),
            (&any, "127.1", ProxyReach::Never),
        ] {
            assert_eq!(proxy_reach(sentence, host), Some(expected), "{sentence}: {host}");
        }
    }

    #[test]
    fn a_network_without_a_proxy_tells_nothing_of_hosts() {
        for network in [Network::All, Network::None, Network::Localhost { ports: vec![80] }] {
            assert_eq!(proxy_reach(&network_sentence(&network), "example.org"), None);
        }
    }
}
