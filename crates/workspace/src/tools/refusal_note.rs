//! Says when a command failed because of the fence: what was refused, and which option of the operator allows it. Found
//! in the messages of real tools, since no kernel layer tells why it refused.

mod git;
mod hidden;
mod network;

use std::path::{Path, PathBuf};

use serde_json::Value;
use wire::worker_variable::GIT_LEFT_OUT;

use self::git::{git_link, note_on_git};
use self::hidden::note_on_hidden;
use self::network::note_on_network;
use crate::context::ServerContext;

/// What a command prints last is why it failed, so no more lines than these are read.
const MAX_LINES: usize = 200;

/// What ssh prints when it has no key that the server knows.
const NO_KEY: &str = "Permission denied (publickey";
/// What ssh prints when it does not know the server, and when it knows it under another key.
const UNKNOWN_HOST: &str = "Host key verification failed";
const CHANGED_HOST: &str = "HOST IDENTIFICATION HAS CHANGED";

/// What the notes depend on.
pub(super) struct FenceFacts {
    roots: Vec<PathBuf>,
    /// Directories that only this session has.
    private: Vec<PathBuf>,
    /// What the report says of the network.
    network: String,
    is_read_only: bool,
    /// What is not named by the policy is not there, instead of being refused.
    has_own_root: bool,
    /// Where the `.git` of the workspace leads, if it is a file.
    git_link: Option<PathBuf>,
    /// The git directory that the gateway found for the workspace and left outside.
    git_left_out: Option<PathBuf>,
    /// The operator lends the ssh agent.
    has_ssh_agent: bool,
}

impl FenceFacts {
    /// `None` where nothing but the usual rights can have refused.
    pub(super) fn of(context: &ServerContext) -> Option<Self> {
        let confinement = context.identity.confinement.as_ref()?;
        let roots: Vec<PathBuf> = context.workspace.roots().map(Path::to_owned).collect();
        let of_variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Some(Self {
            git_link: roots.first().and_then(|root| git_link(root)),
            git_left_out: of_variable(GIT_LEFT_OUT),
            roots,
            private: ["HOME", "TMPDIR", "XDG_CACHE_HOME", "CARGO_HOME"]
                .iter()
                .filter_map(|name| of_variable(name))
                .chain([PathBuf::from("/tmp")])
                .collect(),
            has_ssh_agent: of_variable("SSH_AUTH_SOCK").is_some(),
            network: confinement.get("network").and_then(Value::as_str).unwrap_or("all").to_owned(),
            is_read_only: context.is_read_only,
            has_own_root: has_own_root(confinement),
        })
    }
}

/// Whether the fence shows only what its policy names, in a root of its own.
fn has_own_root(confinement: &Value) -> bool {
    let is_strict =
        |protection: &Value| protection["name"] == "fs_read_scope" && protection["status"] == "enforced";
    confinement["tier"] == "b" && confinement["protections"].as_array().into_iter().flatten().any(is_strict)
}

/// The line for the output of a command that failed.
pub(super) fn note(command: &str, output: &str, facts: &FenceFacts) -> Option<String> {
    let lines = || output.lines().rev().take(MAX_LINES);
    note_on_ssh(output, facts)
        .or_else(|| lines().find_map(|line| note_on_path(line, facts)))
        .or_else(|| note_on_network(command, output, facts))
        .or_else(|| note_on_git(output, facts))
        .or_else(|| lines().find_map(|line| note_on_hidden(line, facts)))
}

fn note_on_path(line: &str, facts: &FenceFacts) -> Option<String> {
    let path = fence::refused_path(line)?;
    let is_in = |directories: &[PathBuf]| directories.iter().any(|directory| path.starts_with(directory));
    if is_in(&facts.private) || path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    let shown = path.display();
    let inside = facts.roots.iter().find_map(|root| path.strip_prefix(root).ok());
    let Some(inside) = inside.or_else(|| path.is_relative().then_some(path.as_path())) else {
        return Some(format!(
            "[ringfence: the fence refused {shown}: only the workspace can be changed; the operator can allow a \
             directory with --write DIR, or reading with --read PATH]"
        ));
    };
    let kept = inside.components().next().and_then(|name| name.as_os_str().to_str());
    match kept.filter(|name| fence::METADATA.contains(name)) {
        Some(name) => Some(format!(
            "[ringfence: the fence keeps {shown} as it is, because other programs obey it; the operator can open it \
             with --allow-metadata {name}]"
        )),
        None if facts.is_read_only => {
            Some(format!("[ringfence: the fence refused {shown}: this session can only read]"))
        }
        None => None,
    }
}

fn note_on_ssh(output: &str, facts: &FenceFacts) -> Option<String> {
    if output.contains(NO_KEY) && !facts.has_ssh_agent {
        return Some(
            "[ringfence: the fence keeps ssh keys and the ssh agent away; the operator can lend the agent with \
             --unix-sockets --allow-degraded unix_pathname --force-env SSH_AUTH_SOCK --read \"$SSH_AUTH_SOCK\"]"
                .to_owned(),
        );
    }
    let is_unknown = output.contains(UNKNOWN_HOST) && !output.contains(CHANGED_HOST);
    is_unknown.then(|| {
        "[ringfence: the fence keeps the list of known ssh hosts away; the operator can show it with --read \
         ~/.ssh/known_hosts, and lend the ssh agent with --unix-sockets --allow-degraded unix_pathname --force-env SSH_AUTH_SOCK --read \
         \"$SSH_AUTH_SOCK\"]"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl FenceFacts {
        pub(super) fn for_tests() -> Self {
            Self {
                roots: vec!["/home/ada/project".into()],
                private: vec!["/own/home".into(), "/tmp".into()],
                network: "none: no network".to_owned(),
                is_read_only: false,
                has_own_root: false,
                git_link: None,
                git_left_out: None,
                has_ssh_agent: false,
            }
        }
    }

    fn note_on(output: &str) -> Option<String> {
        note("make", output, &FenceFacts::for_tests())
    }

    #[test]
    fn messages_of_real_tools_are_understood() {
        for (line, path) in [
            ("touch: cannot touch '/etc/x': Read-only file system", "/etc/x"),
            ("mkdir: cannot create directory \u{2018}/srv/new\u{2019}: Permission denied", "/srv/new"),
            ("bash: line 1: /home/ada/other/f: Permission denied", "/home/ada/other/f"),
            ("sh: 1: cannot create /home/ada/other/f: Permission denied", "/home/ada/other/f"),
            ("PermissionError: [Errno 13] Permission denied: '/home/ada/.bashrc'", "/home/ada/.bashrc"),
            ("Error: EROFS: read-only file system, open '/usr/lib/x'", "/usr/lib/x"),
            ("cp: cannot create regular file '/usr/local/bin/x': Read-only file system", "/usr/local/bin/x"),
        ] {
            let said = note_on(&format!("{line}\nmake: *** [all] Error 1\n")).unwrap_or_default();
            assert!(said.contains(path) && said.contains("--write"), "{line}: {said}");
        }
    }

    #[test]
    fn what_is_kept_and_what_is_unreachable_has_its_own_remedy() {
        let said = |line: &str| note_on(line).unwrap_or_default();
        let hook = said("bash: line 1: .git/hooks/pre-commit: Read-only file system");
        assert!(hook.contains("--allow-metadata .git"), "{hook}");
        let settings = said("sh: 1: cannot create /home/ada/project/.vscode/tasks.json: Permission denied");
        assert!(settings.contains("--allow-metadata .vscode"), "{settings}");
        assert!(said("curl: (6) Could not resolve host: example.org").contains("--net"));
    }

    #[test]
    fn what_ssh_lacks_has_its_own_remedy() {
        let said = |line: &str| note_on(line).unwrap_or_default();
        let no_key =
            said("git@host: Permission denied (publickey).\r\nfatal: Could not read from remote repository.");
        assert!(no_key.contains("--force-env SSH_AUTH_SOCK") && !no_key.contains("known_hosts"), "{no_key}");
        assert!(said("Host key verification failed.\r\n").contains("--read ~/.ssh/known_hosts"));
    }

    #[test]
    fn other_failures_are_not_blamed_on_the_fence() {
        for line in [
            "error[E0308]: mismatched types",
            "cat: missing: No such file or directory",
            "bash: line 1: ./build.sh: Permission denied",
            "rm: cannot remove '/home/ada/project/locked/x': Permission denied",
            "cp: cannot create regular file '/tmp/x/y': Permission denied",
        ] {
            assert_eq!(note_on(line), None, "{line}");
        }
        let with_agent = FenceFacts { has_ssh_agent: true, ..FenceFacts::for_tests() };
        let changed = "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.\n";
        for output in ["git@host: Permission denied (publickey).", changed] {
            assert_eq!(note("git push", output, &with_agent), None, "{output}");
        }
    }

    #[test]
    fn only_a_strict_fence_with_namespaces_has_a_root_of_its_own() {
        let confinement = |tier: &str, status: &str| serde_json::json!({"tier": tier, "protections": [{"name": "fs_read_scope", "status": status}]});
        assert!(has_own_root(&confinement("b", "enforced")));
        assert!(!has_own_root(&confinement("a", "enforced")));
        assert!(!has_own_root(&confinement("b", "not_requested")));
    }
}
