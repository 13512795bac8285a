//! The places for connections: how many there may be, whose they are, and which one is given up for a newcomer.
//!
//! A connection without a request is *idle*. When the places run out, the idle connection that waited longest is given
//! up, first among those that never sent a request. So idle connections, however many, keep no client out; only
//! requests in progress hold a place, and of those one peer or principal can have half.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use identity::Principal;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The part of all places that one peer may have, and the part that the requests of one principal may have: 1 / 2. A
/// busy client has a handful of connections for each session, and 1000 sessions are the default limit.
const SHARE: usize = 2;

/// Where connections come from, as far as they count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// The gateway's own user, who may have all places: this user can also end the gateway.
    OwnUser,
    /// Another user of this host.
    OtherUser(u32),
    /// Another host; for IPv6 a /64 network, of which one host can use every address.
    Host(IpAddr),
    /// The proxy in front, which stands for many hosts. It may have all places.
    Proxy,
}

impl Origin {
    pub(crate) fn host(address: IpAddr) -> Self {
        Self::Host(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            ip @ IpAddr::V4(_) => ip,
        })
    }

    fn may_have_all(self) -> bool {
        matches!(self, Self::OwnUser | Self::Proxy)
    }
}

/// Places for a number of connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    taken: Mutex<Taken>,
    /// Requests in progress.
    requests: Mutex<HashMap<Principal, usize>>,
}

#[derive(Debug, Default)]
struct Taken {
    last_number: u64,
    connections: HashMap<u64, Arc<Connection>>,
}

/// What is known about one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    origin: Origin,
    accepted: Instant,
    /// In microseconds after it was accepted; `BUSY` during a request.
    idle_since: AtomicU64,
    has_begun: AtomicBool,
    /// A request has no response yet. A response that is an event stream may go on for long.
    is_answering: AtomicBool,
    given_up: Notify,
}

const BUSY: u64 = u64::MAX;

impl Places {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, taken: Mutex::default(), requests: Mutex::default() }))
    }

    fn share(&self) -> usize {
        self.0.limit.div_ceil(SHARE)
    }

    /// Returns a place, or `None` if all that this peer may have are taken by requests in progress.
    pub(crate) fn take(&self, origin: Origin) -> Option<Place> {
        let mut taken = self.0.taken.lock();
        let of_origin = |connection: &Connection| connection.origin == origin;
        if !origin.may_have_all() && taken.count(of_origin) >= self.share() {
            taken.give_up_one(of_origin).then_some(())?;
        }
        if taken.connections.len() >= self.0.limit {
            taken.give_up_one(|_| true).then_some(())?;
        }
        taken.last_number += 1;
        let number = taken.last_number;
        let connection = Arc::new(Connection::new(origin));
        taken.connections.insert(number, Arc::clone(&connection));
        Some(Place { places: self.clone(), number, connection })
    }

    /// Gives up the connection that has been idle longest, if any is.
    pub(crate) fn give_up_one(&self) -> bool {
        self.0.taken.lock().give_up_one(|_| true)
    }

    /// Whether no request waits for its response.
    pub(crate) fn are_quiet(&self) -> bool {
        !self.0.taken.lock().any(|connection| connection.is_answering.load(Ordering::Relaxed))
    }

    /// Whether there are no connections but those whose response goes on.
    pub(crate) fn only_respond(&self) -> bool {
        let waits = |connection: &Connection| {
            connection.idle_since().is_some() || connection.is_answering.load(Ordering::Relaxed)
        };
        !self.0.taken.lock().any(waits)
    }

    /// Counts a request of a principal until the result is dropped. `None` if it has as many as it may have.
    pub(crate) fn begin_request(&self, principal: &Principal) -> Option<PrincipalRequest> {
        let mut requests = self.0.requests.lock();
        let count = requests.entry(principal.clone()).or_default();
        if *count >= self.share() {
            return None;
        }
        *count += 1;
        Some(PrincipalRequest { places: self.clone(), principal: principal.clone() })
    }
}

impl Taken {
    fn count(&self, is_counted: impl Fn(&Connection) -> bool) -> usize {
        self.connections.values().filter(|connection| is_counted(connection)).count()
    }

    fn any(&self, is_such: impl Fn(&Connection) -> bool) -> bool {
        self.connections.values().any(|connection| is_such(connection))
    }

    /// Its place is free at once, although the connection takes a moment to close.
    fn give_up_one(&mut self, is_candidate: impl Fn(&Connection) -> bool) -> bool {
        let idle = self.connections.iter().filter_map(|(number, connection)| {
            let since = connection.idle_since().filter(|_| is_candidate(connection))?;
            Some(((connection.has_begun(), since), *number))
        });
        let Some((_, number)) = idle.min() else { return false };
        if let Some(connection) = self.connections.remove(&number) {
            connection.given_up.notify_one();
        }
        true
    }
}

impl Connection {
    fn new(origin: Origin) -> Self {
        Self {
            origin,
            accepted: Instant::now(),
            idle_since: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            is_answering: AtomicBool::new(false),
            given_up: Notify::new(),
        }
    }

    /// Marks the connection as busy until the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Busy {
        self.is_answering.store(true, Ordering::Relaxed);
        self.has_begun.store(true, Ordering::Relaxed);
        self.idle_since.store(BUSY, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether a complete head of a request has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Marks that the response has begun.
    pub(crate) fn responds(&self) {
        self.is_answering.store(false, Ordering::Relaxed);
    }

    /// Resolves when the place was given to another connection.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// `None` during a request.
    fn idle_since(&self) -> Option<Instant> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since != BUSY).then(|| self.accepted + std::time::Duration::from_micros(since))
    }
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    number: u64,
    connection: Arc<Connection>,
}

impl Place {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.taken.lock().connections.remove(&self.number);
    }
}

/// A request in progress on a connection: from its head to the end of the response's body.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        let since = u64::try_from(self.0.accepted.elapsed().as_micros()).unwrap_or(BUSY - 1);
        // Its response may have been given up before it began.
        self.0.responds();
        self.0.idle_since.store(since, Ordering::Relaxed);
    }
}

/// A request in progress of a principal.
#[derive(Debug)]
pub(crate) struct PrincipalRequest {
    places: Places,
    principal: Principal,
}

impl Drop for PrincipalRequest {
    fn drop(&mut self) {
        let mut requests = self.places.0.requests.lock();
        let is_last = requests.get_mut(&self.principal).is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if is_last {
            requests.remove(&self.principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_given_up(place: &Place) -> bool {
        place.connection().given_up().now_or_never().is_some()
    }

    #[test]
    fn the_longest_idle_connection_makes_room_and_silent_ones_first() {
        let places = Places::new(3);
        let take = || places.take(Origin::OwnUser).unwrap();
        let (used, silent, busy) = (take(), take(), take());
        drop(used.connection().begin_request());
        let request = busy.connection().begin_request();
        let newcomer = take();
        assert_eq!([&used, &silent, &busy].map(is_given_up), [false, true, false], "it never sent a request");
        let in_request = newcomer.connection().begin_request();
        let _last = take().connection().begin_request();
        assert_eq!([&used, &busy].map(is_given_up), [true, false]);
        drop((request, in_request));
    }

    #[test]
    fn requests_in_progress_keep_their_places() {
        let places = Places::new(2);
        let (first, second) = (places.take(Origin::OwnUser).unwrap(), places.take(Origin::OwnUser).unwrap());
        let requests = [&first, &second].map(|place| place.connection().begin_request());
        assert!(places.take(Origin::OwnUser).is_none() && !places.give_up_one());
        drop(requests);
        assert!(places.take(Origin::OwnUser).is_some(), "both are idle now");
        drop((first, second));
        assert!(places.0.taken.lock().connections.is_empty());
    }

    #[test]
    fn a_place_that_is_left_is_free() {
        let places = Places::new(1);
        let place = places.take(Origin::OwnUser).unwrap();
        let request = place.connection().begin_request();
        assert!(places.take(Origin::OwnUser).is_none());
        drop(place);
        assert!(places.take(Origin::OwnUser).is_some());
        drop(request);
    }

    #[test]
    fn requests_without_a_response_and_idle_connections_are_told_apart() {
        let places = Places::new(2);
        let seen = || (places.are_quiet(), places.only_respond());
        let place = places.take(Origin::OwnUser).unwrap();
        assert_eq!(seen(), (true, false), "its request may come");
        let request = place.connection().begin_request();
        assert_eq!(seen(), (false, false));
        place.connection().responds();
        assert_eq!(seen(), (true, true), "its response goes on");
        drop(request);
        drop(place.connection().begin_request());
        assert_eq!(seen(), (true, false), "it was given up, and another may come");
        drop(place);
        assert_eq!(seen(), (true, true));
    }

    #[test]
    fn no_stranger_has_more_than_half() {
        let host = |text: &str| Origin::host(text.parse().unwrap());
        for (origin, same, other) in [
            (Origin::OtherUser(7), Origin::OtherUser(7), Origin::OtherUser(8)),
            (host("192.0.2.1"), host("::ffff:192.0.2.1"), host("192.0.2.2")),
            (host("2001:db8::1"), host("2001:db8::2"), host("2001:db8:0:1::1")),
        ] {
            let places = Places::new(4);
            let take = |origin| {
                let place = places.take(origin)?;
                Some((place.connection().begin_request(), place))
            };
            let held = [take(origin), take(same)];
            assert!(held.iter().all(Option::is_some) && take(same).is_none(), "{origin:?}");
            let rest = [take(other), take(other)];
            assert!(rest.iter().all(Option::is_some), "the control: {other:?}");
        }
    }

    #[test]
    fn a_strangers_next_connection_takes_the_place_of_its_own() {
        let places = Places::new(4);
        let own = places.take(Origin::OwnUser).unwrap();
        let [first, second, _third] = [(); 3].map(|()| places.take(Origin::OtherUser(7)).unwrap());
        assert_eq!([&own, &first, &second].map(is_given_up), [false, true, false]);
    }

    #[test]
    fn the_gateways_own_user_and_a_proxy_may_have_all() {
        for origin in [Origin::OwnUser, Origin::Proxy] {
            let places = Places::new(4);
            let held: Vec<_> = (0..4).map_while(|_| places.take(origin)).collect();
            assert_eq!((held.len(), held.iter().any(is_given_up)), (4, false));
        }
    }

    #[test]
    fn one_principal_has_at_most_half_of_the_requests() {
        let places = Places::new(4);
        let [one, other] = ["one", "other"].map(|name| Principal::named(name).unwrap());
        let begin = |principal| places.begin_request(principal);
        let held = [begin(&one), begin(&one)];
        assert!(held.iter().all(Option::is_some) && begin(&one).is_none());
        assert!(begin(&other).is_some(), "the control");
        drop(held);
        assert!(begin(&one).is_some());
        assert!(places.0.requests.lock().is_empty());
    }
}
