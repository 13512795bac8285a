//! Every key that a configuration file can have: its type, default and meaning.
//!
//! The reader, the JSON Schema and the reference are all made from these tables, so they cannot differ.

/// One key of a map.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// As it is written in a file; empty if there is none.
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
    /// A value as it is written in YAML.
    pub(crate) example: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Text,
    /// Text with placeholders.
    Template,
    /// A path. A relative one starts at the directory of the file, `~/` at the home directory.
    Path,
    Flag,
    /// A number greater than 0.
    Seconds,
    /// A whole number from 1.
    Count,
    /// A number of bytes, or text such as `2G`.
    Size,
    /// A date, or a date and time with its offset from UTC.
    Moment,
    /// See [`TOOL_NAME`].
    ToolName,
    Choice(&'static [&'static str]),
    List(&'static Shape),
    /// Keys that the author chooses.
    Map(Named, &'static Shape),
    /// Keys of a table.
    Object(&'static [Key]),
    /// Any of these, told apart by the kind of value.
    Either(&'static [Shape]),
}

/// What the keys of a map name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Server,
    Variable,
    Header,
    Tool,
    Principal,
    Group,
    Directory,
}

impl Named {
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Variable => "variable",
            Self::Header => "header",
            Self::Tool => "tool",
            Self::Principal => "principal",
            Self::Group => "group",
            Self::Directory => "directory",
        }
    }

    pub(crate) fn rule(self) -> NameRule {
        match self {
            Self::Server => NameRule::letters_and_digits("_-").at_most(32),
            Self::Variable => NameRule::letters_and_digits("_").not_beginning_with_a_digit(),
            Self::Header => NameRule::letters_and_digits("!#$%&'*+.^_`|~-"),
            Self::Tool | Self::Principal | Self::Group => NameRule::NotEmpty,
            Self::Directory => NameRule::Absolute,
        }
    }

    pub(crate) fn allows(self, name: &str) -> bool {
        self.rule().allows(name)
    }

    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Server => "names are 1 to 32 letters, digits, `-` and `_`",
            Self::Variable => "names are letters, digits and `_`, and do not begin with a digit",
            Self::Header => "names of headers are letters, digits and `-`",
            Self::Tool | Self::Principal | Self::Group => "the name is empty",
            Self::Directory => "write the absolute path",
        }
    }
}

/// Which names are allowed. The check and the pattern of the schema both come from the rule.
#[derive(Clone, Copy)]
pub(crate) enum NameRule {
    /// ASCII letters, digits, and the listed punctuation, in which `-` comes last.
    Characters {
        punctuation: &'static str,
        longest: Option<usize>,
        may_begin_with_digit: bool,
    },
    NotEmpty,
    /// An absolute path.
    Absolute,
}

/// A name under which clients see a tool.
pub(crate) const TOOL_NAME: NameRule = NameRule::letters_and_digits("_-").at_most(64);

impl NameRule {
    const fn letters_and_digits(punctuation: &'static str) -> Self {
        Self::Characters { punctuation, longest: None, may_begin_with_digit: true }
    }

    const fn at_most(self, length: usize) -> Self {
        match self {
            Self::Characters { punctuation, may_begin_with_digit, .. } => {
                Self::Characters { punctuation, longest: Some(length), may_begin_with_digit }
            }
            other => other,
        }
    }

    const fn not_beginning_with_a_digit(self) -> Self {
        match self {
            Self::Characters { punctuation, longest, .. } => {
                Self::Characters { punctuation, longest, may_begin_with_digit: false }
            }
            other => other,
        }
    }

    pub(crate) fn allows(self, name: &str) -> bool {
        match self {
            Self::Characters { punctuation, longest, may_begin_with_digit } => {
                let is_allowed = |c: char| c.is_ascii_alphanumeric() || punctuation.contains(c);
                let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
                (1..=longest.unwrap_or(usize::MAX)).contains(&name.len())
                    && name.chars().all(is_allowed)
                    && (may_begin_with_digit || !begins_with_digit)
            }
            Self::NotEmpty => !name.is_empty(),
            Self::Absolute => name.starts_with('/'),
        }
    }

    /// The rule as a regular expression.
    pub(crate) fn pattern(self) -> String {
        match self {
            Self::Characters { punctuation, longest, may_begin_with_digit } => {
                let first =
                    if may_begin_with_digit { String::new() } else { format!("[A-Za-z{punctuation}]") };
                let count = match (longest, may_begin_with_digit) {
                    (Some(longest), true) => format!("{{1,{longest}}}"),
                    (Some(longest), false) => format!("{{0,{}}}", longest - 1),
                    (None, true) => "+".to_owned(),
                    (None, false) => "*".to_owned(),
                };
                format!("^{first}[A-Za-z0-9{punctuation}]{count}$")
            }
            Self::NotEmpty => "^.+$".to_owned(),
            Self::Absolute => "^/".to_owned(),
        }
    }
}

const TEXTS: Shape = Shape::List(&Shape::Text);
const PATHS: Shape = Shape::List(&Shape::Path);
const TEMPLATES: Shape = Shape::List(&Shape::Template);
const SECRETS: Shape = Shape::Map(Named::Variable, &Shape::Object(SECRET_SOURCE));

/// The whole file.
pub(crate) const FILE: &[Key] = &[
    Key {
        name: "servers",
        shape: Shape::Map(Named::Server, &Shape::Object(SERVER)),
        default: "",
        about: "The MCP servers, by name. Their order is the order of all lists. At most 256.",
        example: "{time: {command: [uvx, mcp-server-time]}}",
    },
    Key {
        name: "names",
        shape: Shape::Choice(&["prefix", "conflict", "none"]),
        default: "prefix",
        about: "How tools and prompts are named: `prefix` (`server_tool`, always), `conflict` (the tool's own name, \
            and `server_tool` for names that several servers have), `none` (the tool's own name; if several servers \
            have it, the first one's tool).",
        example: "conflict",
    },
    Key {
        name: "localExecution",
        shape: Shape::Choice(&["auto", "here", "attachment"]),
        default: "auto",
        about: "Where servers with `executionContext: local` run: `here` (on this machine), `attachment` (on the \
            client's machine, through its `ringfence connect`), `auto` (here if only this machine can connect, else \
            on the client's).",
        example: "here",
    },
    Key {
        name: "secrets",
        shape: SECRETS,
        default: "",
        about: "Where the values of variables are, for all sessions. A variable that has no entry here, for the principal \
            or for the workspace is looked up in the environment of ringfence.",
        example: "{BRAVE_API_KEY: {file: /run/secrets/brave}}",
    },
    Key {
        name: "principals",
        shape: Shape::Map(Named::Principal, &Shape::Object(PRINCIPAL)),
        default: "",
        about: "Rights and secrets of single principals. The rights of `default` are those of every principal that has none \
            of its own and is in no group.",
        example: "{alice: {scopes: [/srv/alice], secrets: {GITHUB_TOKEN: {file: /run/secrets/alice-github}}}}",
    },
    Key {
        name: "groups",
        shape: Shape::Map(Named::Group, &Shape::Object(GROUP)),
        default: "",
        about: "Rights of several principals. A principal with rights of its own in `principals` has only those.",
        example: "{web: {members: [alice, bob], scopes: [/srv/shop]}}",
    },
    Key {
        name: "workspaces",
        shape: Shape::Map(Named::Directory, &Shape::Object(HOLDER)),
        default: "",
        about: "Settings of sessions in a directory and below it. The nearest directory counts, and takes precedence over \
            the principal. Where callers need tokens, only principals whose `scopes` or `workspaces` hold the directory \
            get its secrets.",
        example: "{/srv/shop: {secrets: {DATABASE_URL: {env: SHOP_DATABASE_URL}}}}",
    },
    Key {
        name: "$schema",
        shape: Shape::Text,
        default: "",
        about: "For editors: the location of the schema that `ringfence config schema` prints. ringfence ignores it.",
        example: "./ringfence.schema.json",
    },
];

const SECRETS_OF_ONE: Key = Key {
    name: "secrets",
    shape: SECRETS,
    default: "",
    about: "Where the values of variables are.",
    example: "{API_KEY: {file: /run/secrets/api-key}}",
};

/// A workspace.
pub(crate) const HOLDER: &[Key] = &[SECRETS_OF_ONE];

pub(crate) const PRINCIPAL: &[Key] =
    &[SCOPES, WORKSPACES, SERVERS, TOOLS_OF_ONE, READ_ONLY, LIMITS_OF_ONE, EXPIRES, SECRETS_OF_ONE];

pub(crate) const GROUP: &[Key] = &[
    Key {
        name: "members",
        shape: TEXTS,
        default: "[]",
        about: "The principals that have these rights. One that is in several groups has the directories, names, servers \
            and tools of all of them and the highest limits; what one of them denies or makes read-only stays so.",
        example: "[alice, bob]",
    },
    SCOPES,
    WORKSPACES,
    SERVERS,
    TOOLS_OF_ONE,
    READ_ONLY,
    LIMITS_OF_ONE,
    EXPIRES,
];

const SCOPES: Key = Key {
    name: "scopes",
    shape: PATHS,
    default: "",
    about: "Where sessions may work: in these directories and below them, and no principal without such an entry may. \
        Default: `--allow-scope`; without it, none.",
    example: "[/srv/alice, /srv/shop]",
};

const WORKSPACES: Key = Key {
    name: "workspaces",
    shape: TEXTS,
    default: "",
    about: "The names of `--workspace` that may be opened. Default: all of them that are not listed for other principals.",
    example: "[docs]",
};

const SERVERS: Key = Key {
    name: "servers",
    shape: TEXTS,
    default: "",
    about: "The servers that sessions get. Default: all.",
    example: "[time]",
};

const TOOLS_OF_ONE: Key = Key {
    name: "tools",
    shape: Shape::Object(PRINCIPAL_TOOLS),
    default: "{}",
    about: "Which tools sessions see, as globs over the names that clients see: only those of `allow`, unless it is empty, \
        and none of `deny`.",
    example: "{deny: [\"*_delete_*\"]}",
};

const READ_ONLY: Key = Key {
    name: "readOnly",
    shape: Shape::Flag,
    default: "false",
    about: "Whether the fences of sessions are read-only. Servers without a fence, and shared ones that write, are off.",
    example: "true",
};

const LIMITS_OF_ONE: Key = Key {
    name: "limits",
    shape: Shape::Object(PRINCIPAL_LIMITS),
    default: "{}",
    about: "How much sessions may use.",
    example: "{sessions: 5, memory: 1G}",
};

const EXPIRES: Key = Key {
    name: "expires",
    shape: Shape::Moment,
    default: "",
    about: "The last day, in UTC, or the time from which the principal is refused (401) and its sessions end.",
    example: "2030-12-31",
};

pub(crate) const PRINCIPAL_TOOLS: &[Key] = &[
    Key {
        name: "allow",
        shape: TEXTS,
        default: "[]",
        about: "Show only these tools. Empty shows all.",
        example: "[\"files_read_*\"]",
    },
    Key {
        name: "deny",
        shape: TEXTS,
        default: "[]",
        about: "Hide these tools, even if `allow` lists them.",
        example: "[\"*_delete_*\"]",
    },
];

pub(crate) const PRINCIPAL_LIMITS: &[Key] = &[
    Key {
        name: "sessions",
        shape: Shape::Count,
        default: "",
        about: "Sessions at once. Default: `--max-sessions-per-principal`, or 50.",
        example: "5",
    },
    Key {
        name: "callsPerSecond",
        shape: Shape::Count,
        default: "",
        about: "Requests per second. Default: `--calls-per-second`, or 50.",
        example: "10",
    },
    Key {
        name: "memory",
        shape: Shape::Size,
        default: "",
        about: "Memory of each server. It lowers the limit of the server's fence and never raises it.",
        example: "1G",
    },
    Key {
        name: "processes",
        shape: Shape::Count,
        default: "",
        about: "Processes of each server. It lowers the limit of the server's fence and never raises it.",
        example: "64",
    },
];

/// Where a secret is: exactly one of these.
pub(crate) const SECRET_SOURCE: &[Key] = &[
    Key {
        name: "env",
        shape: Shape::Text,
        default: "",
        about: "A variable of the environment of ringfence.",
        example: "ALICE_API_KEY",
    },
    Key {
        name: "file",
        shape: Shape::Path,
        default: "",
        about: "A file that holds the value. It is read each time, without the line break at its end.",
        example: "/run/secrets/api-key",
    },
];

pub(crate) const SERVER: &[Key] = &[
    Key {
        name: "command",
        shape: Shape::Either(&[TEMPLATES, Shape::Template]),
        default: "",
        about: "What to run: a list of words; or text, which is split into words like in a shell, without expanding \
            anything; or, together with `args`, only the program. `[ringfence, workspace]` is the built-in server, and \
            so is a server called `filesystem` without `command` and `url`.",
        example: "[npx, -y, \"@modelcontextprotocol/server-memory\"]",
    },
    Key {
        name: "args",
        shape: TEMPLATES,
        default: "[]",
        about: "Arguments that follow `command`.",
        example: "[\"--verbose\"]",
    },
    Key {
        name: "url",
        shape: Shape::Template,
        default: "",
        about: "An MCP endpoint (Streamable HTTP) to use instead of a command.",
        example: "https://mcp.example.com/mcp",
    },
    Key {
        name: "headers",
        shape: Shape::Map(Named::Header, &Shape::Template),
        default: "{}",
        about: "Headers of the requests to `url`.",
        example: "{X-Team: web}",
    },
    Key {
        name: "bearerToken",
        shape: Shape::Either(&[Shape::Template, Shape::Object(SECRET_SOURCE)]),
        default: "",
        about: "The token for `url`: a template such as `${GITHUB_TOKEN}`, or where it is.",
        example: "{file: /run/secrets/github}",
    },
    Key {
        name: "executionContext",
        shape: Shape::Choice(&["local", "remote"]),
        default: "",
        about: "Where it runs: `local` (on the client's machine) or `remote` (on the gateway's). `filesystem`, `git`, \
            `editor-integration` and the built-in server are local by default, all others remote.",
        example: "remote",
    },
    Key {
        name: "overridable",
        shape: Shape::Flag,
        default: "",
        about: "Whether a client may choose the other execution context for its session. By default true; never for a \
            server with variables or other secrets.",
        example: "false",
    },
    Key {
        name: "enabled",
        shape: Shape::Flag,
        default: "true",
        about: "Whether clients see the server.",
        example: "false",
    },
    Key {
        name: "disabled",
        shape: Shape::Flag,
        default: "false",
        about: "The opposite of `enabled`.",
        example: "true",
    },
    Key {
        name: "env",
        shape: Shape::Map(Named::Variable, &Shape::Template),
        default: "{}",
        about: "Variables that it gets besides the basic ones. A variable in `${…}` that is not set disables the server, \
            with the reason.",
        example: "{BRAVE_API_KEY: \"${BRAVE_API_KEY}\"}",
    },
    Key {
        name: "envFile",
        shape: Shape::Path,
        default: "",
        about: "A file with more variables, one `NAME=value` per line; `env` takes precedence. It is read each time the \
            server is prepared for a session. It must be outside of the session's workspace, where agents can write, and \
            must not be a link. No server can read it.",
        example: "/etc/ringfence/brave.env",
    },
    Key {
        name: "workingDirectory",
        shape: Shape::Template,
        default: "\"{workingDirectory}\"",
        about: "Where it starts.",
        example: "\"{workingDirectory}/api\"",
    },
    Key {
        name: "cwd",
        shape: Shape::Template,
        default: "",
        about: "The same as `workingDirectory`, as other clients spell it.",
        example: "/srv/data",
    },
    Key {
        name: "allowedDirectories",
        shape: TEMPLATES,
        default: "[\"{workingDirectory}\"]",
        about: "Where it may write.",
        example: "[\"{workingDirectory}\", \"{storage}\"]",
    },
    Key {
        name: "lifecycle",
        shape: Shape::Choice(&["session", "workspace", "shared", "call"]),
        default: "session",
        about: "What shares a running process: one `session`, the sessions on one `workspace`, all sessions (`shared`), \
            or a single request (`call`).",
        example: "shared",
    },
    Key {
        name: "storage",
        shape: Shape::Choice(&["none", "persistent", "pvc"]),
        default: "none",
        about: "`persistent`: `{storage}` names a directory that outlives sessions, one for each principal and workspace. \
            `pvc` means the same.",
        example: "persistent",
    },
    Key {
        name: "start",
        shape: Shape::Choice(&["lazy", "eager"]),
        default: "lazy",
        about: "When its process starts: with the first call that needs it, or with the session.",
        example: "eager",
    },
    Key {
        name: "allowInstallScripts",
        shape: Shape::Flag,
        default: "",
        about: "Whether packages of `npx` and `uvx` may run code when they are installed, inside the fence of the \
            installation: install scripts of npm, and builds of Python packages that have no wheel. Default: \
            `--allow-install-scripts`.",
        example: "true",
    },
    Key {
        name: "fence",
        shape: Shape::Object(FENCE),
        default: "{}",
        about: "Overrides of the fence options of the command line.",
        example: "{network: none, memory: 2G}",
    },
    Key {
        name: "timeout",
        shape: Shape::Seconds,
        default: "",
        about: "Give up on a call after this many seconds without an answer or progress. Default: `--timeout`.",
        example: "300",
    },
    Key {
        name: "maxTimeout",
        shape: Shape::Seconds,
        default: "",
        about: "Give up on a call after this many seconds, even if it makes progress. Default: `--max-timeout`.",
        example: "7200",
    },
    Key {
        name: "startTimeout",
        shape: Shape::Seconds,
        default: "",
        about: "How long it may take to start, in seconds. Default: `--start-timeout`.",
        example: "120",
    },
    Key {
        name: "tools",
        shape: Shape::Object(TOOLS),
        default: "{}",
        about: "Which of its tools clients see, and under which names.",
        example: "{deny: [\"delete_*\"]}",
    },
];

pub(crate) const FENCE: &[Key] = &[
    Key {
        name: "network",
        shape: Shape::Choice(&["all", "none", "localhost", "http"]),
        default: "",
        about: "What can be reached: everything, nothing, a private loopback, or HTTP through a proxy. Default: `--net`.",
        example: "http",
    },
    Key {
        name: "allowHosts",
        shape: TEXTS,
        default: "[]",
        about: "With `network: http`: the hosts that may be reached, or `*.DOMAIN`. By default any public host.",
        example: "[api.example.com, \"*.example.org\"]",
    },
    Key {
        name: "read",
        shape: PATHS,
        default: "[]",
        about: "Additional paths that may be read.",
        example: "[/srv/models]",
    },
    Key {
        name: "write",
        shape: PATHS,
        default: "[]",
        about: "Additional paths that may be written.",
        example: "[/srv/output]",
    },
    Key {
        name: "denyRead",
        shape: PATHS,
        default: "[]",
        about: "Paths that must not be read. They cannot lie inside the workspace.",
        example: "[~/private]",
    },
    Key {
        name: "readOnly",
        shape: Shape::Flag,
        default: "",
        about: "Whether the workspace is read-only. Default: `--read-only`.",
        example: "true",
    },
    Key {
        name: "allowMetadata",
        shape: TEXTS,
        default: "[]",
        about: "Files that programs outside obey, and that the server may change all the same: names such as `.claude`, \
                or `all`. See `--allow-metadata`.",
        example: "[.claude]",
    },
    Key {
        name: "unixSockets",
        shape: Shape::Flag,
        default: "false",
        about: "Whether the server may use unix sockets, as browsers do. See `--unix-sockets`.",
        example: "true",
    },
    Key {
        name: "sshAgent",
        shape: Shape::Flag,
        default: "false",
        about: "Whether the server may use your ssh-agent (`SSH_AUTH_SOCK` of ringfence): private keys stay outside, but it \
                can sign with all that the agent holds. In Tier A it then reaches other sockets of yours too.",
        example: "true",
    },
    Key {
        name: "gitDirectories",
        shape: PATHS,
        default: "[]",
        about: "Git directories outside the workspace that git may use; hooks and configuration in them stay read-only. \
                `none` leaves out those that are found by themselves. See `--git-directory`.",
        example: "[/srv/git/origin.git]",
    },
    Key {
        name: "memory",
        shape: Shape::Size,
        default: "",
        about: "Memory limit: a number of bytes, or with `K`, `M`, `G` or `T`. Default: `--memory`.",
        example: "2G",
    },
    Key {
        name: "processes",
        shape: Shape::Count,
        default: "",
        about: "Process limit. Default: `--processes`.",
        example: "64",
    },
    Key {
        name: "unfenced",
        shape: Shape::Flag,
        default: "false",
        about: "No fence at all: the server can do everything that you can do.",
        example: "true",
    },
];

pub(crate) const TOOLS: &[Key] = &[
    Key {
        name: "allow",
        shape: TEXTS,
        default: "[]",
        about: "Show only these tools, as globs over the server's own names. Empty shows all.",
        example: "[\"read_*\", search]",
    },
    Key {
        name: "deny",
        shape: TEXTS,
        default: "[]",
        about: "Hide these tools, even if `allow` lists them.",
        example: "[\"delete_*\"]",
    },
    Key {
        name: "aliases",
        shape: Shape::Map(Named::Tool, &Shape::ToolName),
        default: "{}",
        about: "The server's own name → the whole name that clients see: 1 to 64 letters, digits, `-` and `_`.",
        example: "{brave_web_search: web_search}",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_checks_names_and_gives_their_pattern() {
        let longest = "x".repeat(32);
        let too_long = "x".repeat(33);
        let cases: &[(Named, &str, &[&str], &[&str])] = &[
            (Named::Server, "^[A-Za-z0-9_-]{1,32}$", &["a", "9-_Z", &longest], &["", "a b", "ä", &too_long]),
            (Named::Variable, "^[A-Za-z_][A-Za-z0-9_]*$", &["A", "_1"], &["", "1A", "A-B", "A.B"]),
            (
                Named::Header,
                "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
                &["X-Team", "1^`|~"],
                &["", "a b", "a:b", "a/b"],
            ),
            (Named::Tool, "^.+$", &["any thing", "ä"], &[""]),
            (Named::Principal, "^.+$", &["alice"], &[""]),
            (Named::Group, "^.+$", &["web"], &[""]),
            (Named::Directory, "^/", &["/", "/srv/shop"], &["", "srv", "~/x"]),
        ];
        for (named, pattern, good, bad) in cases {
            assert_eq!(named.rule().pattern(), *pattern);
            for name in *good {
                assert!(named.allows(name), "{pattern}: {name}");
            }
            for name in *bad {
                assert!(!named.allows(name), "{pattern}: {name}");
            }
        }
    }

    #[test]
    fn a_tool_name_has_at_most_64_characters() {
        assert_eq!(TOOL_NAME.pattern(), "^[A-Za-z0-9_-]{1,64}$");
        assert!(TOOL_NAME.allows(&"x".repeat(64)) && !TOOL_NAME.allows(&"x".repeat(65)));
    }

    #[test]
    fn a_bounded_rule_counts_the_first_character() {
        let rule = NameRule::letters_and_digits("_").at_most(3).not_beginning_with_a_digit();
        assert_eq!(rule.pattern(), "^[A-Za-z_][A-Za-z0-9_]{0,2}$");
        assert!(rule.allows("a12") && !rule.allows("a123") && !rule.allows("1a"));
    }
}
