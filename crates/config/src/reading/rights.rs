//! Reads the rights of principals and groups.

use crate::ToolRules;
use crate::diagnostic::Findings;
use crate::document::{Entry, Node};
use crate::expiry::parse_expiry;
use crate::keys::{GROUP, PRINCIPAL};
use crate::principals::{Group, PrincipalLimits, PrincipalRights, Principals};

use super::fields::Fields;

pub(super) fn read(file: &Fields<'_>, findings: &mut Findings<'_>) -> Principals {
    let mut principals = Principals::default();
    // An entry with secrets alone leaves the rights to groups and the default.
    let gives_rights = |entry: &&Entry| {
        let keys = entry.value.map().unwrap_or_default();
        keys.is_empty() || keys.iter().any(|key| key.key != "secrets")
    };
    for entry in file.entries("principals").iter().filter(gives_rights) {
        let rights = rights(&Fields::new(&entry.value, PRINCIPAL), findings);
        principals.entries.insert(entry.key.clone(), rights);
    }
    for entry in file.entries("groups") {
        let fields = Fields::new(&entry.value, GROUP);
        let group = Group { members: fields.texts("members"), rights: rights(&fields, findings) };
        principals.groups.insert(entry.key.clone(), group);
    }
    for entry in file.entries("principals").iter().chain(file.entries("groups")) {
        warn_of_unknown_servers(file, entry, findings);
    }
    principals
}

fn rights(fields: &Fields<'_>, findings: &mut Findings<'_>) -> PrincipalRights {
    let is_listed = |name: &str| fields.get(name).and_then(Node::list).is_some();
    let limits = fields.object("limits");
    let count = |name: &str| limits.as_ref().and_then(|limits| limits.count(name));
    PrincipalRights {
        scopes: is_listed("scopes").then(|| fields.paths("scopes", findings)),
        workspaces: is_listed("workspaces").then(|| fields.texts("workspaces")),
        servers: is_listed("servers").then(|| fields.texts("servers")),
        tools: fields.object("tools").map_or_else(ToolRules::default, |tools| ToolRules {
            allow: tools.texts("allow"),
            deny: tools.texts("deny"),
            ..ToolRules::default()
        }),
        read_only: fields.flag("readOnly").unwrap_or(false),
        limits: PrincipalLimits {
            sessions: count("sessions"),
            calls_per_second: count("callsPerSecond"),
            memory_bytes: limits.as_ref().and_then(|limits| limits.bytes("memory")),
            processes: count("processes"),
        },
        expires: fields.text("expires").and_then(parse_expiry),
    }
}

fn warn_of_unknown_servers(file: &Fields<'_>, entry: &Entry, findings: &mut Findings<'_>) {
    let named = entry.value.get("servers").and_then(Node::list).unwrap_or_default();
    for server in named {
        let Some(name) = server.text() else { continue };
        if !file.entries("servers").iter().any(|known| known.key == name) {
            let message = format!("no server is called `{name}`");
            findings.warning(server.place, message, "write a name that stands below `servers`");
        }
    }
}
