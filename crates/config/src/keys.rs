//! Every key that a configuration file can have: its type, default and meaning.
//!
//! The reader, the JSON Schema and the reference are all made from these tables, so they cannot differ.

/// One key of a map.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// As it is written in a file; empty if there is none to speak of.
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
    /// A path; a relative one begins at the directory of the file, `~/` at the home directory.
    Path,
    Flag,
    /// A number greater than 0.
    Seconds,
    /// A whole number from 1.
    Count,
    /// A number of bytes, or text such as `2G`.
    Size,
    /// A name under which clients see a tool.
    ToolName,
    Choice(&'static [&'static str]),
    List(&'static Shape),
    /// Keys that the author chooses.
    Map(Named, &'static Shape),
    /// Keys of a table.
    Object(&'static [Key]),
    /// Any of these, told apart by what kind of value it is.
    Either(&'static [Shape]),
}

/// What the keys of a map are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Server,
    Variable,
    Header,
    Tool,
    Principal,
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
            Self::Directory => "directory",
        }
    }

    /// A regular expression for the names.
    pub(crate) fn pattern(self) -> &'static str {
        match self {
            Self::Server => "^[A-Za-z0-9_-]{1,32}$",
            Self::Variable => "^[A-Za-z_][A-Za-z0-9_]*$",
            Self::Header => "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
            Self::Tool | Self::Principal => "^.+$",
            Self::Directory => "^/",
        }
    }

    /// The same as the pattern.
    pub(crate) fn allows(self, name: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match self {
            Self::Server => is_name_of_at_most(32, name),
            Self::Variable => name.chars().all(is_word) && name.starts_with(|c: char| !c.is_ascii_digit()),
            Self::Header => {
                !name.is_empty() && name.chars().all(|c| is_word(c) || "!#$%&'*+.^`|~-".contains(c))
            }
            Self::Tool | Self::Principal => !name.is_empty(),
            Self::Directory => name.starts_with('/'),
        }
    }

    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Server => "names are 1 to 32 letters, digits, `-` and `_`",
            Self::Variable => "names are letters, digits and `_`, and begin with no digit",
            Self::Header => "names of headers are letters, digits and `-`",
            Self::Tool | Self::Principal => "the name is empty",
            Self::Directory => "write the whole path, from `/` on",
        }
    }
}

pub(crate) const TOOL_NAME_PATTERN: &str = "^[A-Za-z0-9_-]{1,64}$";

pub(crate) fn is_tool_name(name: &str) -> bool {
    is_name_of_at_most(64, name)
}

fn is_name_of_at_most(longest: usize, name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=longest).contains(&name.len()) && name.chars().all(is_allowed)
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
            and `server_tool` for names that several servers have), `none` (the tool's own name; of several, that \
            of the server which stands first).",
        example: "conflict",
    },
    Key {
        name: "localExecution",
        shape: Shape::Choice(&["auto", "here", "attachment"]),
        default: "auto",
        about: "Where servers run whose `executionContext` is `local`: `here` (on this machine), `attachment` \
            (through the `ringfence connect` of the client), `auto` (here if only this machine can connect, else \
            through the client).",
        example: "here",
    },
    Key {
        name: "secrets",
        shape: SECRETS,
        default: "",
        about: "Where the values of variables are, for everybody. What is not named here, for the principal or for \
            the workspace is looked for in the environment of ringfence.",
        example: "{BRAVE_API_KEY: {file: /run/secrets/brave}}",
    },
    Key {
        name: "principals",
        shape: Shape::Map(Named::Principal, &Shape::Object(HOLDER)),
        default: "",
        about: "What single principals have.",
        example: "{alice: {secrets: {GITHUB_TOKEN: {file: /run/secrets/alice-github}}}}",
    },
    Key {
        name: "workspaces",
        shape: Shape::Map(Named::Directory, &Shape::Object(HOLDER)),
        default: "",
        about: "What sessions on a directory have, and on those below it. The nearest counts, before the principal.",
        example: "{/srv/shop: {secrets: {DATABASE_URL: {env: SHOP_DATABASE_URL}}}}",
    },
    Key {
        name: "$schema",
        shape: Shape::Text,
        default: "",
        about: "For editors: where the schema is that `ringfence config schema` prints. ringfence does not look at it.",
        example: "./ringfence.schema.json",
    },
];

/// A principal or a workspace.
pub(crate) const HOLDER: &[Key] = &[Key {
    name: "secrets",
    shape: SECRETS,
    default: "",
    about: "Where the values of variables are.",
    example: "{API_KEY: {file: /run/secrets/api-key}}",
}];

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
        about: "What to run: a list of words; or text, which is split into words like a shell would, without \
            filling anything in; or, beside `args`, the program alone. `[ringfence, workspace]` is the built-in \
            server, and so is a server called `filesystem` that names nothing to run.",
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
        about: "What requests to `url` carry.",
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
            `editor-integration` and the built-in server are local if nothing is said, all others remote.",
        example: "remote",
    },
    Key {
        name: "overridable",
        shape: Shape::Flag,
        default: "",
        about: "Whether a client may choose the other execution context for its session. A server with variables or \
            other secrets never is; all others are if nothing is said.",
        example: "false",
    },
    Key {
        name: "enabled",
        shape: Shape::Flag,
        default: "true",
        about: "Whether it is offered.",
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
        about: "Variables that it gets beside the basic ones. A variable in `${…}` that nobody has set disables the \
            server, with the reason.",
        example: "{BRAVE_API_KEY: \"${BRAVE_API_KEY}\"}",
    },
    Key {
        name: "envFile",
        shape: Shape::Path,
        default: "",
        about: "A file with more variables, one `NAME=value` in a line; `env` counts before it. It is read each time the \
            server is prepared for a session. It must lie outside of the session's workspace, where agents can write, and \
            be no link; no server can read it.",
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
        about: "Who shares a running process: one `session`, the sessions on one `workspace`, all of them (`shared`), \
            or nobody (`call`: one for each request).",
        example: "shared",
    },
    Key {
        name: "storage",
        shape: Shape::Choice(&["none", "persistent", "pvc"]),
        default: "none",
        about: "`persistent`: `{storage}` names a directory that stays, one for each principal and workspace. `pvc` \
            means the same.",
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
        name: "fence",
        shape: Shape::Object(FENCE),
        default: "{}",
        about: "What differs from the fence options of the command line.",
        example: "{network: none, memory: 2G}",
    },
    Key {
        name: "timeout",
        shape: Shape::Seconds,
        default: "",
        about: "Give a call up after this many seconds without an answer or progress. Else `--timeout` counts.",
        example: "300",
    },
    Key {
        name: "maxTimeout",
        shape: Shape::Seconds,
        default: "",
        about: "Give a call up after this many seconds, progress or not. Else `--max-timeout` counts.",
        example: "7200",
    },
    Key {
        name: "startTimeout",
        shape: Shape::Seconds,
        default: "",
        about: "What it may take to start, in seconds. Else `--start-timeout` counts.",
        example: "120",
    },
    Key {
        name: "tools",
        shape: Shape::Object(TOOLS),
        default: "{}",
        about: "Which of its tools are offered, and as what.",
        example: "{deny: [\"delete_*\"]}",
    },
];

pub(crate) const FENCE: &[Key] = &[
    Key {
        name: "network",
        shape: Shape::Choice(&["all", "none", "localhost", "http"]),
        default: "",
        about: "What can be reached: everything, nothing, a private loopback, or HTTP through a proxy. Else `--net` \
            counts.",
        example: "http",
    },
    Key {
        name: "allowHosts",
        shape: TEXTS,
        default: "[]",
        about: "With `network: http`: the hosts that may be reached, or `*.DOMAIN`. Any public one if none is named.",
        example: "[api.example.com, \"*.example.org\"]",
    },
    Key {
        name: "read",
        shape: PATHS,
        default: "[]",
        about: "More that may be read.",
        example: "[/srv/models]",
    },
    Key {
        name: "write",
        shape: PATHS,
        default: "[]",
        about: "More that may be written.",
        example: "[/srv/output]",
    },
    Key {
        name: "denyRead",
        shape: PATHS,
        default: "[]",
        about: "What must not be read, wherever it lies.",
        example: "[~/private]",
    },
    Key {
        name: "readOnly",
        shape: Shape::Flag,
        default: "",
        about: "Whether the workspace can only be read. Else `--read-only` counts.",
        example: "true",
    },
    Key {
        name: "memory",
        shape: Shape::Size,
        default: "",
        about: "The most memory: a number of bytes, or with `K`, `M`, `G` or `T`. Else `--memory` counts.",
        example: "2G",
    },
    Key {
        name: "processes",
        shape: Shape::Count,
        default: "",
        about: "The most processes. Else `--processes` counts.",
        example: "64",
    },
    Key {
        name: "unfenced",
        shape: Shape::Flag,
        default: "false",
        about: "No fence at all: the server can do what you can do.",
        example: "true",
    },
];

pub(crate) const TOOLS: &[Key] = &[
    Key {
        name: "allow",
        shape: TEXTS,
        default: "[]",
        about: "Only these, as globs over the server's own names. All, if empty.",
        example: "[\"read_*\", search]",
    },
    Key {
        name: "deny",
        shape: TEXTS,
        default: "[]",
        about: "Not these, whatever `allow` says.",
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
