//! Counts unknown tokens per address, so that a client with a stale token is told to slow down.
//!
//! This is no protection against guessing, because a valid token passes at any time: that is the length of the tokens.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Failures allowed within [`WINDOW`]. A client with a stale token tries a few times; a program that guesses tries
/// thousands.
const MAX_FAILURES: u32 = 10;

const WINDOW: Duration = Duration::from_secs(1);

/// Addresses counted apart. All others are counted together.
const MAX_ADDRESSES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct FailedAttempts {
    counted: Mutex<HashMap<Source, Failures>>,
}

/// Addresses whose failures are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    V4([u8; 4]),
    /// The /64 network: one IPv6 host usually has all of its addresses.
    V6([u16; 4]),
    Others,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [first, second, third, fourth, ..] = address.segments();
                Self::V6([first, second, third, fourth])
            }
        }
    }
}

impl Failures {
    fn are_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

impl FailedAttempts {
    /// Counts a failure. Returns true if the address has to wait, because it had too many before this one.
    pub(crate) fn add_and_is_too_many(&self, address: IpAddr, now: Instant) -> bool {
        let mut counted = self.lock();
        let source = Source::from(address);
        if bucket(&counted, source) != source {
            counted.retain(|_, failures| failures.are_recent(now));
        }
        let bucket = bucket(&counted, source);
        let failures = counted.entry(bucket).or_insert(Failures { since: now, count: 0 });
        if !failures.are_recent(now) {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        failures.count > MAX_FAILURES
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Source, Failures>> {
        self.counted.lock()
    }
}

/// Where the failures of a source are counted: under its own key while there is room.
fn bucket(counted: &HashMap<Source, Failures>, source: Source) -> Source {
    if counted.len() < MAX_ADDRESSES || counted.contains_key(&source) { source } else { Source::Others }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    /// Adds failures at once. Returns how many of them were not too many.
    fn allowed(failed: &FailedAttempts, address: IpAddr, now: Instant, failures: u32) -> usize {
        (0..failures).filter(|_| !failed.add_and_is_too_many(address, now)).count()
    }

    #[test]
    fn an_address_waits_after_too_many_and_others_do_not() {
        let (failed, now) = (FailedAttempts::default(), Instant::now());
        assert_eq!(allowed(&failed, v4(1), now, 100), 10);
        assert_eq!(allowed(&failed, Ipv4Addr::from(1).to_ipv6_mapped().into(), now, 1), 0);
        assert_eq!(allowed(&failed, v4(2), now, 100), 10);
        assert_eq!(allowed(&failed, v4(1), now + WINDOW, 100), 10, "it begins anew");
    }

    #[test]
    fn a_network_of_one_host_is_one_address() {
        let (failed, now) = (FailedAttempts::default(), Instant::now());
        let address = |net: u16, host: u16| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, host));
        for host in 0..10 {
            assert_eq!(allowed(&failed, address(1, host), now, 1), 1);
        }
        assert_eq!(allowed(&failed, address(1, 99), now, 1), 0);
        assert_eq!(allowed(&failed, address(2, 1), now, 1), 1);
    }

    #[test]
    fn many_addresses_take_no_more_room_and_are_still_counted() {
        let (failed, now) = (FailedAttempts::default(), Instant::now());
        for number in 0..20_000 {
            failed.add_and_is_too_many(v4(number), now);
        }
        assert!(failed.lock().len() <= MAX_ADDRESSES + 1);
        assert_eq!(allowed(&failed, v4(1_000_000), now, 1), 0, "together they are too many");
        let later = now + WINDOW;
        assert_eq!(allowed(&failed, v4(7), later, 1), 1);
        assert_eq!(allowed(&failed, v4(1_000_000), later, 1), 1);
        assert!(failed.lock().len() <= 3, "what is long past is forgotten");
    }
}
