//! From a policy to a Seatbelt request, and to the report that may be given of it on macOS. It looks at
//! the scope only for what is to be kept there.

use std::path::PathBuf;

use super::{SeatbeltNetwork, SeatbeltRead, SeatbeltRequest};
use crate::confinement::{Confinement, Protection, ProtectionName as Name, Status, Verified};
use crate::metadata;
use crate::policy::{Allowance, MetadataChoice, Network, Policy, ReadMode, Temp, Tier, UnixSockets};
use crate::refusal::{Refusal, UnmetRequirement};

/// What the profile of a policy is made from. `proxy_port`: where the proxy listens, for the mode that needs it.
pub(crate) fn request(
    policy: &Policy,
    proxy_port: Option<u16>,
    tag: &str,
) -> Result<SeatbeltRequest, Refusal> {
    let mut writable: Vec<PathBuf> =
        policy.scope.iter().chain(&policy.read_write).map(|root| root.path().to_owned()).collect();
    if let Temp::Private { directory, .. } = &policy.temp {
        writable.push(directory.clone());
    }
    let mut protected = policy.protected.clone();
    if policy.read_only {
        protected.extend(policy.scope.iter().map(|root| root.path().to_owned()));
    }
    // A profile denies names, also of files that do not exist.
    protected.extend(metadata::find(&policy.scope, &policy.metadata, &|_| false).read_only);
    let network = match (&policy.network, proxy_port) {
        (Network::All, _) => SeatbeltNetwork::All,
        (Network::None, _) => SeatbeltNetwork::None,
        (Network::Localhost { .. }, _) => SeatbeltNetwork::Localhost,
        (Network::Http { .. }, Some(port)) => SeatbeltNetwork::Proxy { port },
        (Network::Http { .. }, None) => return Err(cannot_be_said("http", "no proxy listens")),
        (Network::Ports { .. }, _) => {
            return Err(cannot_be_said("ports", "a profile of macOS cannot tell ports of other hosts apart"));
        }
    };
    Ok(SeatbeltRequest {
        writable,
        protected,
        read: match &policy.read {
            ReadMode::Open { .. } => SeatbeltRead::Open,
            ReadMode::Strict { readable } => SeatbeltRead::Strict { readable: readable.clone() },
        },
        deny_read: policy.deny_read.iter().map(|denied| denied.path.clone()).collect(),
        network,
        unix_sockets: match policy.unix_sockets {
            UnixSockets::Deny => Vec::new(),
            UnixSockets::Allow => policy.scope.iter().map(|root| root.path().to_owned()).collect(),
        },
        pty: policy.allows(Allowance::Terminals),
        tag: tag.to_owned(),
    })
}

fn cannot_be_said(mode: &str, reason: &str) -> Refusal {
    Refusal {
        unmet: vec![UnmetRequirement {
            what: "tcp".to_owned(),
            reason: format!("network mode {mode}: {reason}"),
            remedy: "use --net none, localhost or http".to_owned(),
        }],
    }
}

/// The report: what the profile says. Nothing is tried, so nothing is called enforced.
pub(crate) fn confinement(policy: &Policy) -> Confinement {
    let protections = Name::ALL
        .iter()
        .map(|&name| {
            let (status, mechanism, note) = assess(policy, name);
            Protection {
                name,
                status,
                mechanism: mechanism.to_owned(),
                verified: Verified::Config,
                note: note.map(str::to_owned),
            }
        })
        .collect();
    Confinement { tier: Tier::A, network: format!("{}, by Seatbelt", policy.network.name()), protections }
}

fn assess(policy: &Policy, name: Name) -> (Status, &'static str, Option<&'static str>) {
    let seatbelt = (Status::Configured, "seatbelt", None);
    let absent = |note| (Status::Unenforced, "none", Some(note));
    match name {
        Name::FsReadScope if matches!(policy.read, ReadMode::Open { .. }) => {
            (Status::NotRequested, "none", Some("read mode open: all but the deny list can be read"))
        }
        Name::DenyRead if policy.deny_read.is_empty() => {
            (Status::NotRequested, "none", Some("the deny list is empty"))
        }
        Name::Tcp | Name::Udp => match policy.network {
            Network::All => (Status::NotRequested, "none", Some("not restricted")),
            Network::Localhost { .. } => (
                Status::Partial,
                "seatbelt",
                Some("all of the host's loopback can be reached, not only named ports"),
            ),
            _ => seatbelt,
        },
        Name::ProcVisibility => {
            (Status::Partial, "seatbelt", Some("process numbers can be listed, details not"))
        }
        Name::InheritedFds => (Status::Configured, "close-on-exec", None),
        Name::Environment => (Status::Configured, "allow-list", None),
        Name::TempIsolation => {
            (Status::Configured, "seatbelt, session directory", Some("its size is not bounded"))
        }
        Name::FsWriteScope
        | Name::FsReadScope
        | Name::DenyRead
        | Name::FsMetadataWrites
        | Name::FsMetadataReads
        | Name::UnixPathname
        | Name::UnixAbstract
        | Name::OtherFamilies
        | Name::Signals
        | Name::Ptrace
        | Name::SysvIpc
        | Name::DeviceIoctl => seatbelt,
        Name::Keyring => (Status::Configured, "seatbelt", Some("no keychain service can be reached")),
        Name::NestedUserns | Name::IoUring | Name::NoNewPrivs | Name::Capabilities => {
            (Status::NotRequested, "none", Some("does not exist on macOS"))
        }
        Name::SchedControl => absent("priorities of this user's processes can be changed"),
        Name::MemoryLimit => absent("macOS has no limit for a tree of processes"),
        Name::PidLimit => (Status::Partial, "rlimit", Some("counts all processes of this user")),
        Name::TreeKill => {
            (Status::Partial, "process group", Some("a process that leaves its group outlives the command"))
        }
        Name::ScopeMetadata if policy.metadata == MetadataChoice::Writable => (
            Status::NotRequested,
            "none",
            Some("git hooks, editor tasks and agents' settings can be changed"),
        ),
        Name::ScopeMetadata => {
            (Status::Partial, "seatbelt", Some("a directory above one of the files can be renamed"))
        }
        Name::Hardlinks => {
            absent("a file with another name outside the scope can be changed through its name inside")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::policy;

    #[test]
    fn a_policy_becomes_a_profile() {
        let request = request(&policy(), None, "ringfence-1").unwrap();
        assert!(request.writable.contains(&"/srv/project".into()));
        let profile = super::super::profile(&request).unwrap();
        assert!(profile.parameters.iter().any(|(_, value)| value == "/srv/project"));
    }

    #[test]
    fn what_macos_cannot_say_is_refused() {
        let ports = Policy { network: Network::Ports { ports: vec![443] }, ..policy() };
        assert!(request(&ports, None, "t").is_err());
        let http = Policy { network: Network::Http { hosts: None }, ..policy() };
        assert!(request(&http, None, "t").is_err());
        assert_eq!(request(&http, Some(3128), "t").unwrap().network, SeatbeltNetwork::Proxy { port: 3128 });
    }

    #[test]
    fn the_report_claims_no_canary() {
        let report = confinement(&policy());
        assert_eq!(report.protections.len(), Name::ALL.len());
        assert!(report.protections.iter().all(|protection| protection.verified == Verified::Config));
        assert!(report.protections.iter().all(|protection| protection.status != Status::Enforced));
        let without_note = |status| {
            report
                .protections
                .iter()
                .find(|one| one.status == status && one.note.is_none())
                .map(|one| one.name)
        };
        assert_eq!(without_note(Status::Partial).or(without_note(Status::Unenforced)), None);
    }
}
