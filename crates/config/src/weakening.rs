//! Tells whether a configuration that is read again would weaken a fence or widen the rights of a principal. Such a
//! change waits for the next start, so that nothing which can write the file widens what it runs in.

use std::path::{Path, PathBuf};

use crate::model::{Configuration, FencePolicy, Lifecycle, NO_GIT_DIRECTORY, NetworkMode, Server};
use crate::principals::PrincipalRights;

/// A setting that a running gateway does not take from a changed file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Weakening {
    #[error("`{setting}` of the server `{server}` would weaken its fence, which only a start may do")]
    Fence { server: String, setting: &'static str },
    #[error(
        "`{setting}` of the server `{server}` would let clients do more with it, which only a start may do"
    )]
    Server { server: String, setting: &'static str },
    #[error("`{setting}` would give the principal `{principal}` more rights, which only a start may do")]
    Rights { principal: String, setting: &'static str },
    #[error("`{0}` would change the names by which principals have rights, which only a start may do")]
    Names(&'static str),
}

impl Configuration {
    /// The first setting by which `new` allows a server or a principal more than this configuration, with which the
    /// gateway started. A server that is not in this one is compared with a server that has no settings of its own, a
    /// principal that is not with the default.
    pub fn weakened_by(&self, new: &Self) -> Option<Weakening> {
        let fence = new.servers.iter().find_map(|server| {
            let old = self.servers.iter().find(|old| old.name == server.name);
            let name = || server.name.clone();
            let of_fence = weaker_setting(old, server);
            let of_fence = of_fence.map(|setting| Weakening::Fence { server: name(), setting });
            of_fence.or_else(|| {
                let setting = opened_setting(old?, server)?;
                Some(Weakening::Server { server: name(), setting })
            })
        });
        let (before, now) = (&self.principals, &new.principals);
        fence.or_else(|| self.renamed_by(new)).or_else(|| {
            before.names().chain(now.names()).find_map(|name| {
                let setting = wider_right(&before.written_for(name), &now.written_for(name))?;
                Some(Weakening::Rights { principal: name.to_owned(), setting })
            })
        })
    }
}

impl Configuration {
    /// The setting that gives tools other names, where principals have tools by name: a tool that is denied could get
    /// another name.
    fn renamed_by(&self, new: &Self) -> Option<Weakening> {
        if !self.principals.has_tool_rules() {
            return None;
        }
        let has_other_aliases = |server: &Server| {
            let old = self.servers.iter().find(|old| old.name == server.name);
            old.is_some_and(|old| old.tools.aliases != server.tools.aliases)
        };
        let checks =
            [("names", self.names != new.names), ("aliases", new.servers.iter().any(has_other_aliases))];
        checks.into_iter().find(|(_, is_other)| *is_other).map(|(setting, _)| Weakening::Names(setting))
    }
}

/// The setting by which a server that was there at the start does more for clients. A new server is the operator's to
/// add: it holds nothing of any session yet. `storage` and `start` are no rights: a storage is a new directory of the
/// principal and workspace alone.
fn opened_setting(old: &Server, new: &Server) -> Option<&'static str> {
    let (rules, old_rules) = (&new.tools, &old.tools);
    let checks = [
        // What a session left in a process would reach those that share the process then.
        ("lifecycle", sharing(new.lifecycle) > sharing(old.lifecycle)),
        ("tools.allow", has_more_names(some(&rules.allow), some(&old_rules.allow))),
        ("tools.deny", has_more(&old_rules.deny, &rules.deny)),
    ];
    checks.into_iter().find(|(_, is_open)| *is_open).map(|(setting, _)| setting)
}

/// How many share a running server: the calls of one session are the fewest.
fn sharing(lifecycle: Lifecycle) -> u8 {
    match lifecycle {
        Lifecycle::Call => 0,
        Lifecycle::Session => 1,
        Lifecycle::Workspace => 2,
        Lifecycle::Shared => 3,
    }
}

fn wider_right(before: &PrincipalRights, now: &PrincipalRights) -> Option<&'static str> {
    let is_wider_scope = match (&before.scopes, &now.scopes) {
        (None, None) => false,
        // What the command line allows is not known here.
        (Some(_), None) => true,
        (None, Some(now)) => !now.is_empty(),
        (Some(before), Some(now)) => {
            now.iter().any(|path| !before.iter().any(|known| path.starts_with(known)))
        }
    };
    let (limits, old_limits) = (&now.limits, &before.limits);
    let checks = [
        ("scopes", is_wider_scope),
        ("workspaces", has_more_names(now.workspaces.as_deref(), before.workspaces.as_deref())),
        ("servers", has_more_names(now.servers.as_deref(), before.servers.as_deref())),
        ("tools.allow", has_more_names(some(&now.tools.allow), some(&before.tools.allow))),
        ("tools.deny", before.tools.deny.iter().any(|glob| !now.tools.deny.contains(glob))),
        ("readOnly", before.read_only && !now.read_only),
        ("limits.sessions", is_higher(limits.sessions, old_limits.sessions)),
        ("limits.callsPerSecond", is_higher(limits.calls_per_second, old_limits.calls_per_second)),
        ("limits.memory", is_higher(limits.memory_bytes, old_limits.memory_bytes)),
        ("limits.processes", is_higher(limits.processes, old_limits.processes)),
        ("expires", before.expires.is_some_and(|before| now.expires.is_none_or(|now| now > before))),
    ];
    checks.into_iter().find(|(_, is_wider)| *is_wider).map(|(setting, _)| setting)
}

/// Without a list all names are allowed.
fn has_more_names(now: Option<&[String]>, before: Option<&[String]>) -> bool {
    match (now, before) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(now), Some(before)) => now.iter().any(|name| !before.contains(name)),
    }
}

/// An empty list is none.
fn some(list: &[String]) -> Option<&[String]> {
    Some(list).filter(|list| !list.is_empty())
}

fn weaker_setting(old: Option<&Server>, new: &Server) -> Option<&'static str> {
    let default = FencePolicy::default();
    let before = old.map_or(&default, |old| &old.fence);
    let now = &new.fence;
    let allowed = old.and_then(|old| old.allowed_directories.as_ref());
    let is_wider_scope = match (&new.allowed_directories, allowed) {
        // The server would write in the whole workspace.
        (None, before) => before.is_some(),
        (Some(now), before) => now.iter().any(|now| !before.is_some_and(|before| before.contains(now))),
    };
    let scripts = (old.and_then(|old| old.allows_install_scripts), new.allows_install_scripts);
    // Without a setting of its own a server has the gateway's, which is not known here.
    let runs_scripts = scripts.1 != scripts.0 && scripts.1 != Some(false) && scripts.0 != Some(true);
    let checks = [
        ("unfenced", now.unfenced && !before.unfenced),
        ("write", has_more(&now.write, &before.write)),
        ("read", has_more(&now.read, &before.read)),
        ("denyRead", has_more(&before.deny_read, &now.deny_read)),
        ("readOnly", before.read_only == Some(true) && now.read_only != Some(true)),
        ("allowMetadata", has_more(&now.allow_metadata, &before.allow_metadata)),
        ("unixSockets", now.unix_sockets && !before.unix_sockets),
        ("sshAgent", now.ssh_agent && !before.ssh_agent),
        ("gitDirectories", takes_more_git_directories_in(&now.git_directories, &before.git_directories)),
        ("network", is_wider_network(now.network, before.network)),
        ("allowHosts", allows_more_hosts(&now.allow_hosts, &before.allow_hosts)),
        ("memory", is_higher(now.memory_bytes, before.memory_bytes)),
        ("processes", is_higher(now.processes, before.processes)),
        ("allowedDirectories", is_wider_scope),
        ("allowInstallScripts", runs_scripts),
    ];
    checks.into_iter().find(|(_, is_weaker)| *is_weaker).map(|(setting, _)| setting)
}

fn takes_more_git_directories_in(now: &[PathBuf], before: &[PathBuf]) -> bool {
    let is_none = |path: &PathBuf| path == Path::new(NO_GIT_DIRECTORY);
    let is_new = |path: &PathBuf| !is_none(path) && !before.contains(path);
    now.iter().any(is_new) || (before.iter().any(is_none) && !now.iter().any(is_none))
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

    fn configuration(fence: &str) -> Configuration {
        let text = format!("servers:\n  a:\n    command: [a]\n{fence}");
        Configuration::parse(&text, Path::new("config.yaml")).unwrap().configuration
    }

    fn fence(settings: &str) -> Configuration {
        configuration(&format!("    fence: {{{settings}}}\n"))
    }

    fn weakened(old: &Configuration, new: &Configuration) -> Option<&'static str> {
        old.weakened_by(new).map(|weakening| match weakening {
            Weakening::Fence { setting, .. }
            | Weakening::Server { setting, .. }
            | Weakening::Rights { setting, .. }
            | Weakening::Names(setting) => setting,
        })
    }

    #[test]
    fn rights_are_taken_away_at_once_and_widened_by_a_start_alone() {
        let of = |text: &str| Configuration::parse(text, Path::new("/c.yaml")).unwrap().configuration;
        let alice = |rights: &str| of(&format!("principals: {{alice: {{{rights}}}}}\n"));
        for (setting, less, more) in [
            ("scopes", "scopes: [/a/b]", "scopes: [/a/b, /a]"),
            ("scopes", "scopes: []", "readOnly: true"),
            ("scopes", "readOnly: true", "scopes: [/a], readOnly: true"),
            ("workspaces", "workspaces: []", "workspaces: [docs]"),
            ("servers", "servers: [a]", "servers: [a, b]"),
            ("tools.allow", "tools: {allow: [a]}", "tools: {}"),
            ("tools.deny", "tools: {deny: [a, b]}", "tools: {deny: [b]}"),
            ("readOnly", "readOnly: true", "readOnly: false"),
            ("limits.memory", "limits: {memory: 1G}", "limits: {memory: 2G}"),
            ("limits.sessions", "limits: {sessions: 1}", "limits: {}"),
            ("expires", "expires: 2030-01-01", "expires: 2030-01-02"),
        ] {
            assert_eq!(weakened(&alice(less), &alice(more)), Some(setting), "{less} → {more}");
            if setting != "scopes" || less.contains("/a/b") {
                assert_eq!(weakened(&alice(more), &alice(less)), None, "{more} → {less}");
            }
        }
        let grouped = of("groups: {web: {members: [bob], scopes: [/a]}}\n");
        assert_eq!(weakened(&Configuration::default(), &grouped), Some("scopes"), "a new group");
        assert_eq!(
            weakened(&Configuration::default(), &alice("scopes: [/a]")),
            Some("scopes"),
            "a new principal"
        );
        assert_eq!(weakened(&grouped, &Configuration::default()), Some("scopes"), "back to the command line");
        assert_eq!(weakened(&alice("scopes: [/a]"), &alice("scopes: [/a/b]")), None);
    }

    #[test]
    fn what_allows_more_is_named_and_what_allows_less_is_taken() {
        let plain = configuration("");
        for (setting, text) in [
            ("unfenced", "unfenced: true"),
            ("write", "write: [/srv]"),
            ("allowMetadata", "allowMetadata: [.git]"),
            ("gitDirectories", "gitDirectories: [/srv/x.git]"),
            ("read", "read: [/srv]"),
            ("network", "network: all"),
            ("unixSockets", "unixSockets: true"),
            ("sshAgent", "sshAgent: true"),
        ] {
            assert_eq!(weakened(&plain, &fence(text)), Some(setting), "{text}");
            assert_eq!(weakened(&fence(text), &fence(text)), None, "as at the start: {text}");
            assert_eq!(weakened(&Configuration::default(), &fence(text)), Some(setting), "new: {text}");
        }
        for text in ["network: none", "denyRead: [/srv]", "readOnly: true", "gitDirectories: [none]"] {
            assert_eq!(weakened(&plain, &fence(text)), None, "{text}");
        }
        for (setting, text) in [
            ("denyRead", "denyRead: [/srv]"),
            ("readOnly", "readOnly: true"),
            ("gitDirectories", "gitDirectories: [none]"),
        ] {
            assert_eq!(weakened(&fence(text), &plain), Some(setting), "{text}");
        }
        assert_eq!(weakened(&Configuration::default(), &plain), None, "a new server with the usual fence");
    }

    #[test]
    fn a_server_that_was_there_is_opened_by_a_start_alone() {
        let of = |settings: &str| configuration(&format!("    {settings}\n"));
        for (setting, less, more) in [
            ("lifecycle", "lifecycle: session", "lifecycle: workspace"),
            ("lifecycle", "lifecycle: call", "lifecycle: session"),
            ("lifecycle", "lifecycle: workspace", "lifecycle: shared"),
            ("tools.allow", "tools: {allow: [a]}", "tools: {allow: [a, b]}"),
            ("tools.allow", "tools: {allow: [a]}", "tools: {}"),
            ("tools.deny", "tools: {deny: [a, b]}", "tools: {deny: [a]}"),
            ("allowedDirectories", "allowedDirectories: [/srv/a]", "start: lazy"),
            ("allowInstallScripts", "start: lazy", "allowInstallScripts: true"),
            ("allowInstallScripts", "allowInstallScripts: false", "start: lazy"),
        ] {
            assert_eq!(weakened(&of(less), &of(more)), Some(setting), "{less} → {more}");
            assert_eq!(weakened(&of(more), &of(more)), None, "as at the start: {more}");
            if setting != "allowedDirectories" {
                assert_eq!(weakened(&of(more), &of(less)), None, "{more} → {less}");
            }
        }
        let nothing = Configuration::default();
        for new in ["lifecycle: shared", "storage: persistent", "tools: {deny: [a]}"] {
            assert_eq!(weakened(&nothing, &of(new)), None, "a new server: {new}");
        }
        assert_eq!(weakened(&nothing, &of("allowInstallScripts: true")), Some("allowInstallScripts"));
        assert_eq!(weakened(&of("start: lazy"), &of("storage: persistent")), None);
    }

    #[test]
    fn tools_keep_their_names_where_principals_have_rights_by_name() {
        let of = |text: &str, principals: &str| {
            let text = format!("{text}\n{principals}");
            Configuration::parse(&text, Path::new("/c.yaml")).unwrap().configuration
        };
        let server = |tools: &str| format!("servers: {{a: {{command: [a], tools: {{{tools}}}}}}}");
        let rules = "principals: {alice: {tools: {deny: [a_push]}}}";
        let aliased = server("aliases: {push: send}");
        for (setting, text) in
            [("aliases", aliased.clone()), ("names", format!("names: none\n{}", server("")))]
        {
            let (before, now) = (of(&server(""), rules), of(&text, rules));
            assert_eq!(weakened(&before, &now), Some(setting), "{text}");
            assert_eq!(weakened(&now, &before), Some(setting), "back: {text}");
            assert_eq!(weakened(&now, &now), None, "as at the start: {text}");
            assert_eq!(weakened(&of(&server(""), ""), &of(&text, "")), None, "without rules: {text}");
        }
        assert_eq!(weakened(&of("", rules), &of(&aliased, rules)), None, "a new server");
    }
}
