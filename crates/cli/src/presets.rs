//! A small catalogue of known servers: what `ringfence add` sets for them beyond their command, and why.

use config::edit::ServerEntry;
use serde_json::{Value, json};

/// What a known server needs in its fence.
pub(crate) struct Preset {
    /// Words of a command that mean this server, without a version.
    packages: &'static [&'static str],
    /// Fields that are set unless the user sets them.
    fields: fn() -> Vec<(&'static str, Value)>,
    /// What the fields are for, or what the operator may have to open, one line each.
    pub(crate) reasons: &'static [&'static str],
}

const PRESETS: &[Preset] = &[
    Preset {
        packages: &["@modelcontextprotocol/server-memory"],
        fields: || {
            vec![
                ("storage", json!("persistent")),
                ("lifecycle", json!("workspace")),
                ("env", json!({"MEMORY_FILE_PATH": "{storage}/memory.jsonl"})),
            ]
        },
        reasons: &[
            "storage: persistent, because it keeps its file beside its own code, which no session may write",
            "lifecycle: workspace, so that the sessions of a workspace share one memory",
        ],
    },
    Preset {
        packages: &["basic-memory"],
        fields: || {
            let env = json!({
                "HOME": "{storage}",
                "BASIC_MEMORY_HOME": "{storage}/notes",
                "BASIC_MEMORY_CONFIG_DIR": "{storage}/settings",
            });
            vec![
                ("storage", json!("persistent")),
                ("lifecycle", json!("workspace")),
                ("env", env),
                ("allowInstallScripts", json!(true)),
            ]
        },
        reasons: &[
            "storage: persistent, because its notes and its index lie in the home directory, which goes with the session",
            "lifecycle: workspace, so that the sessions of a workspace share one set of notes",
            "allowInstallScripts: true, because one of its packages (pybars3) exists only as source, which runs code of its \
             own when it is installed, in the fence of the installation",
        ],
    },
    Preset {
        packages: &["mcp-server-fetch"],
        // npm then prints its help and changes nothing. The server goes on with its own extractor in Python.
        fields: || vec![("env", json!({"NPM_CONFIG_USAGE": "true"}))],
        reasons: &[
            "env: NPM_CONFIG_USAGE, because it runs `npm install` in the directory of its own code at its first call, which \
             no session may write; with `serve --no-package-cache` each workspace has a copy that it can write",
        ],
    },
    Preset {
        packages: &["mcp-server-git"],
        fields: || vec![("executionContext", json!("local"))],
        reasons: &[
            "executionContext: local, because the repository is on the client's machine",
            "commits work in worktrees, submodules and folders of a repository; hooks and configuration stay read-only",
        ],
    },
    Preset {
        packages: &["@playwright/mcp", "chrome-devtools-mcp"],
        fields: || vec![("fence", json!({"network": "http", "unixSockets": true}))],
        reasons: &[
            "fence: {network: http, unixSockets: true}, because the processes of a browser talk over unix sockets, and the \
             network through ringfence's proxy keeps those of other programs out of reach",
            "its arguments must switch off the browser's own sandbox, which cannot be made inside a fence: `--no-sandbox` \
             for playwright, `--chromeArg=--no-sandbox` for chrome-devtools (docs/servers.md, Browsers)",
        ],
    },
    Preset {
        packages: &[
            "ssh-mcp",
            "@fangjunjie/ssh-mcp-server",
            "mcp-ssh-manager",
            "@aiondadotcom/mcp-ssh",
            "mcp-server-ssh",
        ],
        fields: || vec![("fence", json!({"sshAgent": true}))],
        reasons: &[
            "fence: {sshAgent: true}, because private keys stay outside: the server reaches the socket of your ssh-agent, \
             and can sign with every key in it while it runs",
            "known hosts are not shown either; to show them: `fence: {read: [~/.ssh/known_hosts]}`",
        ],
    },
    Preset {
        packages: &["@modelcontextprotocol/server-postgres", "postgres-mcp"],
        fields: Vec::new,
        reasons: &[
            "a database on this machine is reached over TCP (127.0.0.1). Its unix socket needs `serve --unix-sockets \
             --allow-degraded unix_pathname --read SOCKET`, which opens sockets of other programs by name too",
        ],
    },
    Preset {
        packages: &["mcp-server-docker", "docker-mcp"],
        fields: Vec::new,
        reasons: &[
            "it needs the socket of docker, through which a program gets all rights of root: the fence keeps it out. To \
             open it all the same: `serve --unix-sockets --allow-degraded unix_pathname --read /var/run/docker.sock`",
        ],
    },
];

/// The preset of a command.
pub(crate) fn of_command<'a>(command: impl IntoIterator<Item = &'a str>) -> Option<&'static Preset> {
    let is_known = |package: &str, word: &str| {
        word == package || word.strip_prefix(package).is_some_and(|rest| rest.starts_with(['@', '=']))
    };
    let of_word =
        |word| PRESETS.iter().find(|preset| preset.packages.iter().any(|package| is_known(package, word)));
    command.into_iter().find_map(of_word)
}

/// The variables that point a known server at its storage, with `{storage}` in their values.
pub(crate) fn storage_variables<'a>(command: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let all = variables(command);
    all.into_iter().filter(|(_, value)| value.contains("{storage}")).collect()
}

/// The variables that keep a known server from writing beside its code, where that is installed for all sessions.
pub(crate) fn package_variables<'a>(command: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let all = variables(command);
    all.into_iter().filter(|(_, value)| !value.contains("{storage}")).collect()
}

fn variables<'a>(command: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let fields = of_command(command).map(|preset| (preset.fields)()).unwrap_or_default();
    let variables =
        fields.iter().filter(|(name, _)| *name == "env").filter_map(|(_, value)| value.as_object());
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    variables.flatten().filter_map(text).collect()
}

impl Preset {
    /// Sets the fields that the entry does not have. Variables of the user stay beside those of the preset.
    pub(crate) fn apply(&self, entry: &mut ServerEntry) {
        for (name, value) in (self.fields)() {
            match entry.fields.iter_mut().find(|(given, _)| *given == name) {
                Some((_, Value::Object(given))) => {
                    for (variable, value) in value.as_object().into_iter().flatten() {
                        given.entry(variable.clone()).or_insert_with(|| value.clone());
                    }
                }
                Some(_) => {}
                None => entry.fields.push((name, value)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> std::str::Split<'_, char> {
        command.split(' ')
    }

    #[test]
    fn a_known_package_is_found_with_and_without_a_version() {
        for command in [
            "npx -y @modelcontextprotocol/server-memory",
            "npx -y @modelcontextprotocol/server-memory@2025.4.25",
            "uvx basic-memory==0.15.0 mcp",
        ] {
            assert!(of_command(words(command)).is_some(), "{command}");
        }
        for command in ["npx -y @modelcontextprotocol/server-memory-x", "uvx mcp-server-time"] {
            assert!(of_command(words(command)).is_none(), "{command}");
        }
    }

    #[test]
    fn variables_for_a_storage_are_apart_from_those_for_installed_code() {
        let memory = "npx -y @modelcontextprotocol/server-memory";
        assert_eq!(storage_variables(words(memory)).len(), 1);
        assert!(package_variables(words(memory)).is_empty());
        let fetch = "uvx mcp-server-fetch";
        assert!(storage_variables(words(fetch)).is_empty());
        assert_eq!(package_variables(words(fetch)), [("NPM_CONFIG_USAGE".to_owned(), "true".to_owned())]);
    }

    #[test]
    fn what_the_user_sets_stays() {
        let mut entry = ServerEntry {
            name: "memory".to_owned(),
            fields: vec![
                ("lifecycle", json!("session")),
                ("env", json!({"MEMORY_FILE_PATH": "/x", "A": "b"})),
            ],
        };
        of_command(words("npx @modelcontextprotocol/server-memory")).unwrap().apply(&mut entry);
        let field = |name: &str| entry.fields.iter().find(|(given, _)| *given == name).unwrap().1.clone();
        assert_eq!(field("lifecycle"), "session");
        assert_eq!(field("storage"), "persistent");
        assert_eq!(field("env"), json!({"MEMORY_FILE_PATH": "/x", "A": "b"}));
    }
}
