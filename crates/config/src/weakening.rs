//! Tells whether a configuration that is read again would weaken a fence. Such a change waits for the next start, so
//! that nothing which can write the file widens what it runs in.

use crate::model::{Configuration, FencePolicy, NetworkMode, Server};

/// A setting that a running gateway does not take from a changed file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}` of the server `{server}` would weaken its fence, which only a start may do")]
pub struct Weakening {
    pub server: String,
    pub setting: &'static str,
}

impl Configuration {
    /// The first setting by which `new` allows a server more than this configuration, with which the gateway started.
    /// A server that is not in this one is compared with a server that has no settings of its own.
    pub fn weakened_by(&self, new: &Self) -> Option<Weakening> {
        new.servers.iter().find_map(|server| {
            let old = self.servers.iter().find(|old| old.name == server.name);
            let setting = weaker_setting(old, server)?;
            Some(Weakening { server: server.name.clone(), setting })
        })
    }
}

fn weaker_setting(old: Option<&Server>, new: &Server) -> Option<&'static str> {
    let default = FencePolicy::default();
    let before = old.map_or(&default, |old| &old.fence);
    let now = &new.fence;
    let allowed = old.and_then(|old| old.allowed_directories.as_ref());
    let is_wider_scope = match (&new.allowed_directories, allowed) {
        (None, _) => false,
        (Some(now), before) => now.iter().any(|now| !before.is_some_and(|before| before.contains(now))),
    };
    let checks = [
        ("unfenced", now.unfenced && !before.unfenced),
        ("write", has_more(&now.write, &before.write)),
        ("read", has_more(&now.read, &before.read)),
        ("denyRead", has_more(&before.deny_read, &now.deny_read)),
        ("readOnly", before.read_only == Some(true) && now.read_only != Some(true)),
        ("allowMetadata", has_more(&now.allow_metadata, &before.allow_metadata)),
        ("network", is_wider_network(now.network, before.network)),
        ("allowHosts", allows_more_hosts(&now.allow_hosts, &before.allow_hosts)),
        ("memory", is_higher(now.memory_bytes, before.memory_bytes)),
        ("processes", is_higher(now.processes, before.processes)),
        ("allowedDirectories", is_wider_scope),
    ];
    checks.into_iter().find(|(_, is_weaker)| *is_weaker).map(|(setting, _)| setting)
}

fn has_more<T: PartialEq>(now: &[T], before: &[T]) -> bool {
    now.iter().any(|path| !before.contains(path))
}

/// Without a mode of its own a server has the gateway's, which is not known here.
fn is_wider_network(now: Option<NetworkMode>, before: Option<NetworkMode>) -> bool {
    now != before && now != Some(NetworkMode::None)
}

/// An empty list allows every host.
fn allows_more_hosts(now: &[String], before: &[String]) -> bool {
    match (now.is_empty(), before.is_empty()) {
        (_, true) => false,
        (true, false) => true,
        (false, false) => now.iter().any(|host| !before.contains(host)),
    }
}

fn is_higher(now: Option<u64>, before: Option<u64>) -> bool {
    match (now, before) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(now), Some(before)) => now > before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn configuration(fence: &str) -> Configuration {
        let text = format!("servers:\n  a:\n    command: [a]\n{fence}");
        Configuration::parse(&text, Path::new("config.yaml")).unwrap().configuration
    }

    fn fence(settings: &str) -> Configuration {
        configuration(&format!("    fence: {{{settings}}}\n"))
    }

    fn weakened(old: &Configuration, new: &Configuration) -> Option<&'static str> {
        old.weakened_by(new).map(|weakening| weakening.setting)
    }

    #[test]
    fn what_allows_more_is_named_and_what_allows_less_is_taken() {
        let plain = configuration("");
        for (setting, text) in [
            ("unfenced", "unfenced: true"),
            ("write", "write: [/srv]"),
            ("allowMetadata", "allowMetadata: [.git]"),
            ("read", "read: [/srv]"),
            ("network", "network: all"),
        ] {
            assert_eq!(weakened(&plain, &fence(text)), Some(setting), "{text}");
            assert_eq!(weakened(&fence(text), &fence(text)), None, "as at the start: {text}");
            assert_eq!(weakened(&Configuration::default(), &fence(text)), Some(setting), "new: {text}");
        }
        for text in ["network: none", "denyRead: [/srv]", "readOnly: true"] {
            assert_eq!(weakened(&plain, &fence(text)), None, "{text}");
        }
        for (setting, text) in [("denyRead", "denyRead: [/srv]"), ("readOnly", "readOnly: true")] {
            assert_eq!(weakened(&fence(text), &plain), Some(setting), "{text}");
        }
        assert_eq!(weakened(&Configuration::default(), &plain), None, "a new server with the usual fence");
    }
}
