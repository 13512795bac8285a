//! The one way out of a fence: a host is looked up once, all its addresses are checked, and only a checked
//! address is dialled. There is no second look-up that could answer differently.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address::{Reach, reach_of};
use super::hosts::{AllowedHosts, Grant, Host, HostRefusal};
use super::interfaces::own_addresses;
use super::outside::Outside;
use super::refusals::RefusalLog;

/// For a look-up, waiting for its turn included. The C library gives up after about as long.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(15);

/// For a connection, whichever of the addresses it is with.
const CONNECT_DEADLINE: Duration = Duration::from_secs(20);

/// How long an address is tried alone before the next one is tried as well: many hosts have an IPv6 address
/// from which nothing comes back.
const HEAD_START: Duration = Duration::from_millis(250);

/// Look-ups at a time in one fence. Each one holds a thread of the runtime's blocking pool, which the rest of
/// the gateway needs too.
const MOST_LOOK_UPS: usize = 8;

/// Addresses of one host that are tried.
const MOST_ADDRESSES: usize = 8;

/// What one fence may reach, and how.
#[derive(Debug)]
pub(super) struct Egress {
    hosts: AllowedHosts,
    outside: Outside,
    look_ups: Arc<Semaphore>,
    refusals: RefusalLog,
}

/// Addresses that have passed the check. Only this module makes them, apart from none at all.
#[derive(Debug, Default)]
pub(super) struct CheckedAddresses(Vec<IpAddr>);

/// Why a host is not reached. The message is for the program inside: it does not tell addresses of the
/// networks around the host.
#[derive(Debug, thiserror::Error)]
pub(super) enum EgressError {
    #[error("{host} is not allowed: {reason}")]
    NotAllowed { host: Host, reason: HostRefusal },
    #[error("{host} is not allowed: its address is {what}")]
    ForbiddenAddress { host: Host, what: &'static str },
    #[error("{host} is not allowed: its address is {what}, so the allow-list must name exactly this host")]
    PrivateAddress { host: Host, what: &'static str },
    #[error("the addresses of this host cannot be told, so none can be checked")]
    OwnAddressesUnknown(#[source] io::Error),
    #[error("{host} cannot be resolved")]
    Unresolved { host: Host, source: io::Error },
    #[error("{host} has no address")]
    NoAddress { host: Host },
    #[error("resolving {host} took too long")]
    ResolvingTookTooLong { host: Host },
    #[error("no connection to {host}")]
    NoConnection { host: Host, source: io::Error },
    #[error("connecting to {host} took too long")]
    ConnectingTookTooLong { host: Host },
}

impl CheckedAddresses {
    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().copied()
    }

    /// Alternates between the families, in the resolver's order.
    fn by_turns_of_families(&self) -> Vec<IpAddr> {
        let first_is_v4 = self.0.first().is_some_and(IpAddr::is_ipv4);
        let (one, other): (Vec<_>, Vec<_>) =
            self.iter().partition(|address| address.is_ipv4() == first_is_v4);
        let pairs = one.len().min(other.len());
        let in_turns = one.iter().zip(&other).flat_map(|(one, other)| [*one, *other]);
        in_turns.chain(one[pairs..].iter().copied()).chain(other[pairs..].iter().copied()).collect()
    }
}

impl Egress {
    pub(super) fn from_this_host(hosts: AllowedHosts) -> Self {
        Self::new(hosts, Outside::ThisHost)
    }

    pub(super) fn new(hosts: AllowedHosts, outside: Outside) -> Self {
        let look_ups = Arc::new(Semaphore::new(MOST_LOOK_UPS));
        Self { hosts, outside, look_ups, refusals: RefusalLog::new() }
    }

    pub(super) fn refusals(&self) -> &RefusalLog {
        &self.refusals
    }

    /// Whether the allow-list lets the host pass, before its addresses are known. Sends no query.
    pub(super) fn grant(&self, host: &Host) -> Result<Grant, EgressError> {
        self.hosts.grant(host).map_err(|reason| {
            self.refusals.tell(host, &reason);
            EgressError::NotAllowed { host: host.clone(), reason }
        })
    }

    /// The addresses of an allowed host. One bad address among them refuses the host as a whole.
    pub(super) async fn addresses_of(&self, host: &Host) -> Result<CheckedAddresses, EgressError> {
        let grant = self.grant(host)?;
        let mut addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.look_up(host, name).await?,
        };
        if addresses.is_empty() {
            return Err(EgressError::NoAddress { host: host.clone() });
        }
        let own = own_addresses().map_err(EgressError::OwnAddressesUnknown)?;
        for address in &mut addresses {
            *address = address.to_canonical();
            if let Err((refusal, what)) = check(host, *address, grant, &own) {
                self.refusals.tell(host, &format_args!("{address} is {what}"));
                return Err(refusal);
            }
        }
        Ok(CheckedAddresses(addresses))
    }

    /// Resolves, checks and connects: the checked address that answers first.
    pub(super) async fn dial(&self, host: &Host, port: u16) -> Result<TcpStream, EgressError> {
        let addresses = self.addresses_of(host).await?;
        match timeout(CONNECT_DEADLINE, self.connect(addresses.by_turns_of_families(), port)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(source)) => Err(EgressError::NoConnection { host: host.clone(), source }),
            Err(_) => Err(EgressError::ConnectingTookTooLong { host: host.clone() }),
        }
    }

    async fn connect(&self, addresses: Vec<IpAddr>, port: u16) -> io::Result<TcpStream> {
        let mut untried = addresses.into_iter().take(MOST_ADDRESSES);
        let mut attempts = JoinSet::new();
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            if let Some(address) = untried.next() {
                let outside = self.outside.clone();
                attempts.spawn(async move { outside.connect(SocketAddr::new(address, port)).await });
            }
            tokio::select! {
                attempt = attempts.join_next() => match attempt {
                    Some(Ok(Ok(stream))) => return Ok(stream),
                    Some(Ok(Err(error))) => failure = error,
                    Some(Err(error)) => failure = io::Error::other(error),
                    None => return Err(failure),
                },
                () = sleep(HEAD_START), if untried.len() > 0 => {}
            }
        }
    }

    async fn look_up(&self, host: &Host, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        let (turns, outside, name) = (Arc::clone(&self.look_ups), self.outside.clone(), name.to_owned());
        let looking_up = async move {
            let turn = turns.acquire_owned().await.map_err(io::Error::other)?;
            // A task of its own, because a look-up goes on in its thread after we have given up: its turn
            // ends when it does.
            let look_up = tokio::spawn(async move {
                let found = outside.look_up(&name).await;
                drop(turn);
                found
            });
            look_up.await.map_err(io::Error::other)?
        };
        match timeout(LOOK_UP_DEADLINE, looking_up).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(source)) => Err(EgressError::Unresolved { host: host.clone(), source }),
            Err(_) => Err(EgressError::ResolvingTookTooLong { host: host.clone() }),
        }
    }
}

/// What the address is, if it may not be dialled.
fn check(
    host: &Host,
    address: IpAddr,
    grant: Grant,
    own: &[IpAddr],
) -> Result<(), (EgressError, &'static str)> {
    let host = host.clone();
    match (reach_of(address, own), grant) {
        (Reach::Public, _) | (Reach::Private(_), Grant::ByName) => Ok(()),
        (Reach::Private(what), Grant::InGeneral) => Err((EgressError::PrivateAddress { host, what }, what)),
        (Reach::Forbidden(what), _) => Err((EgressError::ForbiddenAddress { host, what }, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outside::scripted::Script;
    use super::*;

    /// An egress for the allow-list (`None`: any host), and the script of what is outside.
    fn egress(list: Option<&[&str]>) -> (Egress, Arc<Script>) {
        let hosts = match list {
            None => AllowedHosts::Any,
            Some(list) => AllowedHosts::Only(list.iter().map(|entry| entry.parse().unwrap()).collect()),
        };
        let script = Arc::new(Script::default());
        (Egress::new(hosts, script.outside()), script)
    }

    async fn verdict(egress: &Egress, host: &str) -> Result<Vec<String>, EgressError> {
        let addresses = egress.addresses_of(&host.parse().unwrap()).await?;
        Ok(addresses.iter().map(|address| address.to_string()).collect())
    }

    #[tokio::test]
    async fn all_addresses_of_a_public_host_pass() {
        let (egress, script) = egress(None);
        script.name("example.org", &[&["93.184.216.34", "2606:2800::1", "::ffff:1.1.1.1"]]);
        let addresses = verdict(&egress, "example.org").await.unwrap();
        assert_eq!(addresses, ["93.184.216.34", "2606:2800::1", "1.1.1.1"]);
    }

    #[tokio::test]
    async fn one_forbidden_address_refuses_the_host() {
        let (egress, script) = egress(Some(&["example.org"]));
        for bad in ["127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254", "::ffff:127.0.0.1", "0.0.0.0"] {
            script.name("example.org", &[&["93.184.216.34", bad]]);
            let refusal = verdict(&egress, "example.org").await.unwrap_err();
            assert!(matches!(refusal, EgressError::ForbiddenAddress { .. }), "{bad}: {refusal}");
            assert!(!refusal.to_string().contains(bad), "{refusal}");
        }
    }

    #[tokio::test]
    async fn private_addresses_need_an_exact_entry() {
        for list in [None, Some(&["*.example.org"][..])] {
            let (egress, script) = egress(list);
            script.name("git.example.org", &[&["10.1.2.3"]]);
            let refusal = verdict(&egress, "git.example.org").await.unwrap_err();
            assert!(matches!(refusal, EgressError::PrivateAddress { .. }), "{refusal}");
        }
        let (egress, script) = egress(Some(&["git.example.org", "192.168.7.7"]));
        script.name("git.example.org", &[&["10.1.2.3"]]);
        assert_eq!(verdict(&egress, "git.example.org").await.unwrap(), ["10.1.2.3"]);
        assert_eq!(verdict(&egress, "192.168.7.7").await.unwrap(), ["192.168.7.7"]);
    }

    #[tokio::test]
    async fn literals_are_checked_as_names_are() {
        let (any, _) = egress(None);
        assert_eq!(verdict(&any, "93.184.216.34").await.unwrap(), ["93.184.216.34"]);
        for bad in ["127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[fe80::1]"]
        {
            assert!(verdict(&any, bad).await.is_err(), "{bad}");
        }
        let (listed, _) = egress(Some(&["127.0.0.1", "169.254.169.254"]));
        assert!(verdict(&listed, "127.0.0.1").await.is_err());
        assert!(verdict(&listed, "169.254.169.254").await.is_err());
    }

    #[tokio::test]
    async fn this_hosts_own_addresses_are_refused() {
        let (egress, script) = egress(Some(&["example.org"]));
        for own in own_addresses().unwrap() {
            script.name("example.org", &[&[own.to_string().as_str()]]);
            let refusal = verdict(&egress, "example.org").await.unwrap_err();
            assert!(matches!(refusal, EgressError::ForbiddenAddress { .. }), "{own}: {refusal}");
        }
    }

    #[tokio::test]
    async fn a_host_that_is_not_allowed_is_never_looked_up() {
        let (egress, script) = egress(Some(&["example.org"]));
        assert!(verdict(&egress, "secret.attacker.net").await.is_err());
        assert!(script.looked_up().is_empty());
    }

    #[tokio::test]
    async fn dialling_tries_the_next_address() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (egress, script) = egress(None);
        script.name("example.org", &[&["93.184.216.34", "93.184.216.35"]]);
        script.server("93.184.216.35:443", server.local_addr().unwrap());
        egress.dial(&"example.org".parse().unwrap(), 443).await.unwrap();
        assert_eq!(script.dialled(), ["93.184.216.34:443", "93.184.216.35:443"]);
    }

    #[test]
    fn families_take_turns() {
        let addresses =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let resolved = CheckedAddresses(addresses(&["2606::1", "2606::2", "2606::3", "1.1.1.1", "1.1.1.2"]));
        let expected = addresses(&["2606::1", "1.1.1.1", "2606::2", "1.1.1.2", "2606::3"]);
        assert_eq!(resolved.by_turns_of_families(), expected);
    }

    #[tokio::test]
    async fn look_ups_take_turns() {
        let (egress, script) = egress(None);
        script.name("example.org", &[&["93.184.216.34"]]);
        for _ in 0..3 * MOST_LOOK_UPS {
            verdict(&egress, "example.org").await.unwrap();
        }
        assert_eq!(egress.look_ups.available_permits(), MOST_LOOK_UPS);
    }
}
