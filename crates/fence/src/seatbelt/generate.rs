//! From a request to a profile. The last rule that matches decides, so the order is: deny everything, allow,
//! and deny once more what lies inside of what was allowed.
//!
//! Some things are ways out and have no rule at all: Apple events and `lsopen`, with which other programs
//! act on the command's behalf, and the keychain's services but the one that TLS needs.

use std::path::PathBuf;

use super::expression::{Expression, form, named, symbol, text};
use super::rule_path::{RulePath, directories_above, is_within};
use super::system;
use super::{
    PathError, PathList, SeatbeltError, SeatbeltNetwork, SeatbeltProfile, SeatbeltRead, SeatbeltRequest,
};

const LONGEST_TAG: usize = 64;

/// All that changes a file, or gives it another name or a copy that no rule knows.
const WRITE_OPERATIONS: &[&str] = &["file-write*", "file-link", "file-clone"];

pub(super) fn generate(request: &SeatbeltRequest) -> Result<SeatbeltProfile, SeatbeltError> {
    let paths = RequestPaths::parse(request)?;
    check_tag(&request.tag)?;
    if request.network == (SeatbeltNetwork::Proxy { port: 0 }) {
        return Err(SeatbeltError::ProxyPort);
    }
    let mut generator = Generator { request, paths, parameters: Parameters::default() };
    let sections = [
        ("Nothing, to begin with", generator.foundation()),
        ("Processes", processes()),
        ("The machine", machine()),
        ("Services", generator.services()),
        ("Devices", generator.devices()),
        ("Network", generator.network()),
        ("Reads", generator.reads()),
        ("Writes", generator.writes()),
        ("Denied whatever is allowed above", generator.denials()),
    ];
    Ok(SeatbeltProfile { text: write_sections(&sections), parameters: generator.parameters.entries })
}

/// The tag is the one word of a request that is part of the text.
fn check_tag(tag: &str) -> Result<(), SeatbeltError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=LONGEST_TAG).contains(&tag.len()) && tag.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(SeatbeltError::Tag)
    }
}

fn write_sections(sections: &[(&str, Vec<Expression>)]) -> String {
    let mut out = String::from("(version 1)\n");
    for (title, rules) in sections.iter().filter(|(_, rules)| !rules.is_empty()) {
        out.push_str("\n; ");
        out.push_str(title);
        out.push('\n');
        for rule in rules {
            rule.write(0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// The paths of a request, each list without repetitions.
struct RequestPaths {
    writable: Vec<RulePath>,
    protected: Vec<RulePath>,
    readable: Vec<RulePath>,
    denied: Vec<RulePath>,
    sockets: Vec<RulePath>,
}

impl RequestPaths {
    fn parse(request: &SeatbeltRequest) -> Result<Self, SeatbeltError> {
        let readable = match &request.read {
            SeatbeltRead::Open => &[][..],
            SeatbeltRead::Strict { readable } => readable,
        };
        let paths = Self {
            writable: parse_list(PathList::Writable, &request.writable)?,
            protected: parse_list(PathList::Protected, &request.protected)?,
            readable: parse_list(PathList::Readable, readable)?,
            denied: parse_list(PathList::DenyRead, &request.deny_read)?,
            sockets: parse_list(PathList::UnixSockets, &request.unix_sockets)?,
        };
        if paths.writable.is_empty() {
            return Err(SeatbeltError::NoWritable);
        }
        paths.refuse_denied_writable()?;
        Ok(Self {
            writable: without_repetitions(paths.writable),
            protected: without_repetitions(paths.protected),
            readable: without_repetitions(paths.readable),
            denied: without_repetitions(paths.denied),
            sockets: without_repetitions(paths.sockets),
        })
    }

    /// The denial would win, and the command would have no workspace without anyone knowing why.
    fn refuse_denied_writable(&self) -> Result<(), SeatbeltError> {
        for (writable_index, writable) in self.writable.iter().enumerate() {
            if let Some(index) = self.denied.iter().position(|denied| denied.contains(writable)) {
                let (writable, denied) = (writable_index + 1, index + 1);
                return Err(SeatbeltError::WritableIsDenied { writable, denied });
            }
        }
        Ok(())
    }
}

fn parse_list(list: PathList, paths: &[PathBuf]) -> Result<Vec<RulePath>, SeatbeltError> {
    let parse_one = |(index, path): (usize, &PathBuf)| {
        let fail = |error| SeatbeltError::Path { list, number: index + 1, error };
        let path = RulePath::parse(path).map_err(fail)?;
        // All sockets is something that can be asked for. All files is not: such a list is a mistake.
        if path.is_root() && list != PathList::UnixSockets {
            return Err(fail(PathError::WholeFileSystem));
        }
        Ok(path)
    };
    paths.iter().enumerate().map(parse_one).collect()
}

fn without_repetitions<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}

/// The `-D` parameters so far. A path has one key, however many rules name it.
#[derive(Default)]
struct Parameters {
    entries: Vec<(String, String)>,
}

impl Parameters {
    /// `(param "ROLE_n")`: all that a rule ever says of a path.
    fn reference(&mut self, role: &str, path: &str) -> Expression {
        let known = self.entries.iter().find(|(_, value)| value == path).map(|(key, _)| key.clone());
        let key = known.unwrap_or_else(|| {
            let of_role = |(key, _): &&(String, String)| key.starts_with(role);
            let key = format!("{role}_{}", self.entries.iter().filter(of_role).count());
            self.entries.push((key.clone(), path.to_owned()));
            key
        });
        named("param", &key)
    }

    fn literal(&mut self, role: &str, path: &str) -> Expression {
        form("literal", [self.reference(role, path)])
    }

    fn literals(&mut self, role: &str, paths: &[String]) -> Vec<Expression> {
        paths.iter().map(|path| self.literal(role, path)).collect()
    }

    /// The path and all below it. `subpath` alone misses the moment when a directory itself is created.
    fn trees(&mut self, role: &str, paths: &[String]) -> Vec<Expression> {
        let mut filters = Vec::new();
        for path in paths {
            filters.push(self.literal(role, path));
            filters.push(form("subpath", [self.reference(role, path)]));
        }
        filters
    }
}

struct Generator<'a> {
    request: &'a SeatbeltRequest,
    paths: RequestPaths,
    parameters: Parameters,
}

impl Generator<'_> {
    fn foundation(&self) -> Vec<Expression> {
        vec![
            self.deny_all(&["default"]),
            // Operations that the default is known or suspected not to reach.
            self.deny_all(&["process-info*", "nvram*", "file-link", "file-clone"]),
        ]
    }

    fn services(&self) -> Vec<Expression> {
        let mut names = system::MACH_ALWAYS.to_vec();
        if self.request.network != SeatbeltNetwork::None {
            names.extend(system::MACH_NETWORK);
        }
        if self.reads_are_unrestricted() {
            names.extend(system::MACH_PREFERENCES);
        }
        let mut rules = Vec::from_iter(allow(&["mach-lookup"], all_named("global-name", &names)));
        if self.reads_are_unrestricted() {
            rules.push(allow_all(&["user-preference-read"]));
            let shared = vec![named("ipc-posix-name-prefix", "apple.cfprefs.")];
            rules.extend(allow(&["ipc-posix-shm-read*"], shared));
        }
        rules
    }

    /// Preferences are files that a service reads for others, so they are for those who may read any file.
    fn reads_are_unrestricted(&self) -> bool {
        self.request.read == SeatbeltRead::Open && self.paths.denied.is_empty()
    }

    fn devices(&self) -> Vec<Expression> {
        // A file of that name put in its place by someone else would not be a character device.
        let null = form("require-all", [named("literal", "/dev/null"), vnode_type("CHARACTER-DEVICE")]);
        let mut rules = Vec::from_iter(allow(&["file-write-data"], vec![null]));
        if self.request.pty {
            rules.extend(pseudo_terminals());
        }
        rules
    }

    fn network(&mut self) -> Vec<Expression> {
        let mut rules = Vec::new();
        let resolves_names = self.request.network == SeatbeltNetwork::All;
        match self.request.network {
            SeatbeltNetwork::None => {}
            SeatbeltNetwork::All => rules.extend(ip_rules("*:*", true)),
            SeatbeltNetwork::Localhost => rules.extend(ip_rules("localhost:*", true)),
            SeatbeltNetwork::Proxy { port } => rules.extend(ip_rules(&format!("localhost:{port}"), false)),
        }
        if resolves_names || !self.paths.sockets.is_empty() {
            // Only whether such sockets can be made; what they reach is said below.
            let family = form("socket-domain", [symbol("AF_UNIX")]);
            rules.extend(allow(&["system-socket"], vec![family]));
        }
        if resolves_names {
            let resolver = each_socket("remote", all_named("literal", system::RESOLVER_SOCKETS));
            rules.extend(allow(&["network-outbound"], resolver));
        }
        let sockets = spellings(&self.paths.sockets);
        let sockets = self.parameters.trees("SOCKET", &sockets);
        rules.extend(allow(&["network-bind", "network-inbound"], each_socket("local", sockets.clone())));
        rules.extend(allow(&["network-outbound"], each_socket("remote", sockets)));
        rules
    }

    fn reads(&mut self) -> Vec<Expression> {
        if self.request.read == SeatbeltRead::Open {
            return vec![allow_all(&["file-read*"])];
        }
        let mut rules = Vec::new();
        rules.extend(allow(&["file-read*"], all_named("literal", system::READABLE_FILES)));
        rules.extend(allow(&["file-read*"], all_named("subpath", system::READABLE_TREES)));
        rules.extend(allow(VISIBILITY_OPERATIONS, all_named("literal", system::VISIBLE)));
        let writable = spellings(&self.paths.writable);
        let readable = spellings(&self.paths.readable);
        let above = self.visible_directories(writable.iter().chain(&readable));
        let mut filters = self.parameters.trees("WRITABLE", &writable);
        filters.extend(self.parameters.trees("READABLE", &readable));
        rules.extend(allow(&["file-read*"], filters));
        rules.extend(allow(VISIBILITY_OPERATIONS, self.parameters.literals("ABOVE", &above)));
        rules
    }

    /// The directories on the way to what can be read: `realpath` looks at each of them. None that is
    /// denied, because an exact operation may outrank the denial of its whole family.
    fn visible_directories<'p>(&self, paths: impl Iterator<Item = &'p String>) -> Vec<String> {
        let denied = spellings(&self.paths.denied);
        let is_denied = |path: &String| denied.iter().any(|denied| is_within(path, denied));
        without_repetitions(paths.flat_map(|path| directories_above(path)).filter(|path| !is_denied(path)))
    }

    fn writes(&mut self) -> Vec<Expression> {
        let mut rules = Vec::new();
        for root in &self.paths.writable {
            let protected = self.paths.protected.iter().filter(|path| path.overlaps(root));
            let denied = self.paths.denied.iter().filter(|path| path.overlaps(root));
            let trees = self.parameters.trees("WRITABLE", &root.spellings());
            let protected = self.parameters.trees("PROTECTED", &spellings(protected));
            let denied = self.parameters.trees("DENIED", &spellings(denied));
            let exceptions = protected.into_iter().chain(denied).map(|filter| form("require-not", [filter]));
            let exceptions: Vec<Expression> = exceptions.collect();
            let filters = if exceptions.is_empty() {
                trees
            } else {
                let inside = std::iter::once(form("require-any", trees));
                vec![form("require-all", inside.chain(exceptions))]
            };
            rules.extend(allow(WRITE_OPERATIONS, filters));
        }
        rules
    }

    fn denials(&mut self) -> Vec<Expression> {
        let mut rules = Vec::new();
        rules.extend(self.deny_protected());
        rules.extend(self.deny_denied());
        rules.extend(self.deny_moving());
        let any_bundled_service = vec![named("xpc-service-name-prefix", "")];
        rules.extend(self.deny(&["mach-lookup"], any_bundled_service));
        let commands = system::WRITING_FCNTLS.iter().map(|command| symbol(command));
        rules.extend(self.deny(&["system-fcntl"], vec![form("fcntl-command", commands)]));
        rules
    }

    fn deny_protected(&mut self) -> Vec<Expression> {
        let protected = spellings(&self.paths.protected);
        let mut rules = Vec::new();
        let filters = self.parameters.trees("PROTECTED", &protected);
        rules.extend(self.deny(&["file-write*", "file-link"], filters));
        // A directory with the protected name in it could be prepared elsewhere and moved into place.
        let roots = spellings(&self.paths.writable);
        let is_inside = |path: &String| roots.iter().any(|root| path != root && is_within(path, root));
        let missing = protected.iter().flat_map(|path| directories_above(path)).filter(is_inside);
        let filters = self.parameters.literals("ABOVE", &without_repetitions(missing));
        rules.extend(self.deny(&["file-write-create"], filters));
        rules
    }

    fn deny_denied(&mut self) -> Vec<Expression> {
        let denied: Vec<String> = self.paths.denied.iter().flat_map(RulePath::spellings_to_deny).collect();
        let filters = self.parameters.trees("DENIED", &denied);
        let mut rules = Vec::new();
        // No rule about files stops a connection to a socket.
        if !self.paths.sockets.is_empty() {
            rules.extend(self.deny(&["network-outbound"], each_socket("remote", filters.clone())));
        }
        rules.extend(self.deny(&["file-read*", "file-write*", "file-link", "file-clone"], filters));
        // A copy of a directory takes all below it along, and only the directory is looked at. Outside of
        // what is writable no copy can be made in the first place.
        let roots = spellings(&self.paths.writable);
        let is_inside = |path: &String| roots.iter().any(|root| is_within(path, root));
        let above = denied.iter().flat_map(|path| directories_above(path)).filter(is_inside);
        let filters = self.parameters.literals("ABOVE", &without_repetitions(above));
        rules.extend(self.deny(&["file-clone"], filters));
        rules
    }

    /// A renamed directory takes all below it out of the rules that name it, so none that a rule depends on can be
    /// moved or removed.
    fn deny_moving(&mut self) -> Option<Expression> {
        let roots = spellings(&self.paths.writable);
        let inner = spellings(self.paths.protected.iter().chain(&self.paths.denied));
        let above = roots.iter().chain(&inner).flat_map(|path| directories_above(path));
        let fixed = without_repetitions(roots.iter().cloned().chain(above));
        let fixed = form("require-any", self.parameters.literals("ABOVE", &fixed));
        let directories = form("require-all", [vnode_type("DIRECTORY"), fixed]);
        self.deny(&["file-write-unlink"], vec![directories])
    }

    fn deny_all(&self, operations: &[&str]) -> Expression {
        rule("deny", operations, vec![self.message()])
    }

    /// A denial with its tag; nothing where there is nothing to deny.
    fn deny(&self, operations: &[&str], mut filters: Vec<Expression>) -> Option<Expression> {
        (!filters.is_empty()).then(|| {
            filters.push(self.message());
            rule("deny", operations, filters)
        })
    }

    fn message(&self) -> Expression {
        form("with", [symbol("message"), text(self.request.tag.as_str())])
    }
}

/// Seeing that something is there, and what it is.
const VISIBILITY_OPERATIONS: &[&str] = &["file-read-metadata", "file-test-existence"];

fn processes() -> Vec<Expression> {
    let own = || vec![form("target", [symbol("same-sandbox")])];
    let mut rules = vec![
        allow_all(&["process-exec", "process-fork"]),
        // A library that can be read can be loaded, as a program that can be read can be run.
        allow_all(&["file-map-executable"]),
        // Python's `multiprocessing` locks with them.
        allow_all(&["ipc-posix-sem"]),
    ];
    rules.extend(allow(&["signal"], own()));
    rules.extend(allow(&["process-info*"], own()));
    rules
}

fn machine() -> Vec<Expression> {
    let mut filters = all_named("sysctl-name", system::SYSCTL_NAMES);
    filters.extend(all_named("sysctl-name-prefix", system::SYSCTL_PREFIXES));
    Vec::from_iter(allow(&["sysctl-read"], filters))
}

/// The extension marks the terminals that the command has opened itself; those of others stay closed.
fn pseudo_terminals() -> Vec<Expression> {
    let own = [named("regex", "^/dev/ttys[0-9]+$"), named("extension", "com.apple.sandbox.pty")];
    let filters = vec![named("literal", "/dev/ptmx"), named("literal", "/dev/tty"), form("require-all", own)];
    let mut rules = vec![allow_all(&["pseudo-tty"])];
    rules.extend(allow(&["file-read*", "file-write*", "file-ioctl"], filters));
    rules
}

/// Connections to one place and, where servers are allowed, listening anywhere.
///
/// What is local says nothing about where a connection goes: `local` on `network-outbound` would match
/// any socket that is not bound. And a listener for both address families shows as `::ffff:127.0.0.1`,
/// which is not `localhost`, hence `*`.
fn ip_rules(remote: &str, may_listen: bool) -> Vec<Expression> {
    let mut rules = Vec::new();
    rules.extend(allow(&["network-outbound"], vec![form("remote", [symbol("ip"), text(remote)])]));
    if may_listen {
        let anywhere = form("local", [symbol("ip"), text("*:*")]);
        rules.extend(allow(&["network-bind", "network-inbound"], vec![anywhere]));
    }
    rules
}

/// `(side unix-socket filter)` for each filter.
fn each_socket(side: &str, filters: Vec<Expression>) -> Vec<Expression> {
    filters.into_iter().map(|filter| form(side, [symbol("unix-socket"), filter])).collect()
}

fn vnode_type(name: &str) -> Expression {
    form("vnode-type", [symbol(name)])
}

fn all_named(filter: &str, names: &[&str]) -> Vec<Expression> {
    names.iter().map(|name| named(filter, name)).collect()
}

fn spellings<'p>(paths: impl IntoIterator<Item = &'p RulePath>) -> Vec<String> {
    paths.into_iter().flat_map(RulePath::spellings).collect()
}

/// An operation without any condition. Not the same function as the one with conditions, because a list
/// of them that happens to be empty must not allow everything.
fn allow_all(operations: &[&str]) -> Expression {
    rule("allow", operations, Vec::new())
}

/// The operations where one of the filters matches; nothing where there are none.
fn allow(operations: &[&str], filters: Vec<Expression>) -> Option<Expression> {
    (!filters.is_empty()).then(|| rule("allow", operations, filters))
}

fn rule(action: &str, operations: &[&str], rest: Vec<Expression>) -> Expression {
    form(action, operations.iter().map(|operation| symbol(operation)).chain(rest))
}
