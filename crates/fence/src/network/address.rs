//! Which addresses may be dialled for a fenced program: public ones; private ones for hosts that the
//! allow-list names; never the host itself, its links and the metadata services of clouds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, from the most to the least reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Public,
    /// Of a private network, or otherwise not of the public Internet. What it is, for the log.
    Private(&'static str),
    /// Never dialled. What it is, for the log.
    Forbidden(&'static str),
}

/// Addresses at which clouds tell a machine its credentials, outside the link-local ranges. To be compared
/// with the providers' pages at each release.
const METADATA: [IpAddr; 6] = [
    // Alibaba Cloud.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure: the host's agent.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle Cloud.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // AWS: instance metadata, and the credentials of pods.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    // Google Cloud.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Judges an address, given the addresses of the host's own interfaces.
///
/// An IPv6 address that stands for an IPv4 one is judged as that one too.
pub(super) fn reach_of(address: IpAddr, own: &[IpAddr]) -> Reach {
    let address = address.to_canonical();
    let is = |wanted: &IpAddr| wanted.to_canonical() == address;
    if own.iter().any(is) {
        return Reach::Forbidden("one of this host's own");
    }
    if METADATA.iter().any(is) {
        return Reach::Forbidden("that of a cloud metadata service");
    }
    match address {
        IpAddr::V4(address) => reach_of_v4(address),
        IpAddr::V6(address) => match ipv4_behind(address) {
            Some(behind) => reach_of(behind.into(), own),
            None => reach_of_v6(address),
        },
    }
}

fn reach_of_v4(address: Ipv4Addr) -> Reach {
    match address.octets() {
        [0, ..] => Reach::Forbidden("unspecified"),
        [127, ..] => Reach::Forbidden("loopback"),
        [169, 254, ..] => Reach::Forbidden("link-local"),
        [224..=239, ..] => Reach::Forbidden("multicast"),
        [240..=255, ..] => Reach::Forbidden("broadcast or reserved"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Reach::Private("private"),
        [100, 64..=127, ..] => Reach::Private("shared by a carrier"),
        [192, 0, 0, _] | [198, 18..=19, ..] => Reach::Private("for special purposes"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Reach::Private("for documentation"),
        _ => Reach::Public,
    }
}

fn reach_of_v6(address: Ipv6Addr) -> Reach {
    match address.segments() {
        // All of ::/32, so also the deprecated forms `::a.b.c.d` and `::ffff:0:a.b.c.d`.
        [0, 0, ..] => Reach::Forbidden("unspecified, loopback or an obsolete form of an IPv4 one"),
        [0xfe80..=0xfebf, ..] => Reach::Forbidden("link-local"),
        [0xff00..=0xffff, ..] => Reach::Forbidden("multicast"),
        // Its last 32 bits are an IPv4 address, inverted; such tunnels are long gone.
        [0x2001, 0, ..] => Reach::Forbidden("that of a Teredo tunnel"),
        [0xfc00..=0xfdff, ..] => Reach::Private("private"),
        [0xfec0..=0xfeff, ..] => Reach::Private("site-local"),
        [0x2001, 0x1..=0x1ff, ..] => Reach::Private("for special purposes"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Reach::Private("for documentation"),
        [0x2000..=0x3fff, ..] => Reach::Public,
        // The range for a network's own NAT64 is here too: where in it an IPv4 address sits is not known.
        _ => Reach::Forbidden("not assigned for public use"),
    }
}

/// The IPv4 address to which a router takes packets for this IPv6 address: NAT64's well-known prefix
/// (`64:ff9b::/96`) and 6to4 (`2002::/16`). Mapped addresses are IPv4 ones already, by `to_canonical`.
fn ipv4_behind(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(Ipv4Addr::new(a, b, c, d)),
        [0x2002, high, low, ..] => Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reach(text: &str) -> Reach {
        reach_of(text.parse().unwrap(), &[])
    }

    /// Every IPv6 address that stands for the IPv4 one in some notation.
    fn embeddings(address: Ipv4Addr) -> [IpAddr; 6] {
        let [a, b, c, d] = address.octets();
        let high = u16::from_be_bytes([a, b]);
        let low = u16::from_be_bytes([c, d]);
        [
            address.to_ipv6_mapped().into(),
            address.to_ipv6_compatible().into(),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low).into(),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into(),
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low).into(),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1).into(),
        ]
    }

    #[test]
    fn public_addresses_are_public() {
        for text in
            ["93.184.216.34", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]
        {
            assert_eq!(reach(text), Reach::Public, "{text}");
        }
        assert_eq!(reach("64:ff9b::8.8.8.8"), Reach::Public);
        assert_eq!(reach("2002:808:808::1"), Reach::Public);
    }

    #[test]
    fn the_host_its_links_and_metadata_are_forbidden() {
        let forbidden = [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "224.0.0.1",
            "239.255.255.250",
            "255.255.255.255",
            "240.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "64:ff9b:1::1",
            "100::1",
            "5f00::1",
            "2001:0:4136:e378::1",
        ];
        for text in forbidden {
            assert!(matches!(reach(text), Reach::Forbidden(_)), "{text}: {:?}", reach(text));
        }
    }

    #[test]
    fn private_addresses_are_private() {
        let private = [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.2.1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "2001:db8::1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
        ];
        for text in private {
            assert!(matches!(reach(text), Reach::Private(_)), "{text}: {:?}", reach(text));
        }
    }

    #[test]
    fn own_addresses_are_forbidden_in_every_form() {
        let own = [IpAddr::from([93, 184, 216, 34]), "2606:4700::5".parse().unwrap()];
        for address in own.into_iter().chain(embeddings(Ipv4Addr::new(93, 184, 216, 34))) {
            assert!(matches!(reach_of(address, &own), Reach::Forbidden(_)), "{address}");
        }
        assert_eq!(reach_of("93.184.216.35".parse().unwrap(), &own), Reach::Public);
    }

    fn forbidden_v4() -> impl Strategy<Value = Ipv4Addr> {
        let within = |network: [u8; 4], bits: u32| {
            let mask = u32::MAX.checked_shr(bits).unwrap_or(0);
            any::<u32>().prop_map(move |random| {
                Ipv4Addr::from_bits(u32::from_be_bytes(network) & !mask | random & mask)
            })
        };
        prop_oneof![
            within([127, 0, 0, 0], 8),
            within([0, 0, 0, 0], 8),
            within([169, 254, 0, 0], 16),
            within([224, 0, 0, 0], 4),
            within([240, 0, 0, 0], 4),
            within([255, 255, 255, 255], 32),
            within([100, 100, 100, 200], 32),
            within([168, 63, 129, 16], 32),
            within([192, 0, 0, 192], 32),
        ]
    }

    proptest! {
        #[test]
        fn no_forbidden_address_passes_in_any_embedding(address in forbidden_v4()) {
            prop_assert!(matches!(reach_of(address.into(), &[]), Reach::Forbidden(_)));
            for embedded in embeddings(address) {
                prop_assert!(matches!(reach_of(embedded, &[]), Reach::Forbidden(_)), "{}", embedded);
            }
        }

        #[test]
        fn an_embedding_never_reaches_further(bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            let plain = reach_of(address.into(), &[]);
            for embedded in embeddings(address) {
                let reach = reach_of(embedded, &[]);
                prop_assert!(reach == plain || matches!(reach, Reach::Forbidden(_)), "{}", embedded);
            }
        }
    }
}
