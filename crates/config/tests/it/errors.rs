//! Bad files: the exact messages about them, and their positions.

use std::fmt::Write as _;

use crate::wrong;

const FILE: &str = "/etc/rf/c.yaml";

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(wrong(text, FILE), expected, "{text}");
}

/// Like `check`, for a line in an otherwise valid server.
#[track_caller]
fn check_server(text: &str, expected: &[&str]) {
    check(&format!("servers:\n  a:\n    command: [x]\n    {text}\n"), expected);
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    check("server: {}\n", &["1:1: unknown key `server` | did you mean `servers`?"]);
    check(
        "servers: {a: {comand: [x], execution_context: local}}\n",
        &[
            "1:15: unknown key `comand` | did you mean `command`?",
            "1:28: unknown key `execution_context` | did you mean `executionContext`?",
        ],
    );
    check_server("fence: {netwrk: none}", &["4:13: unknown key `netwrk` | did you mean `network`?"]);
    check_server("tools: {hide: [x]}", &["4:13: unknown key `hide` | known here: allow, deny, aliases"]);
    check_server("type: stdio", &["4:5: unknown key `type` | leave it out: `command` or `url` says it"]);
}

#[test]
fn a_file_of_something_else_gets_one_error() {
    check(
        "apiVersion: v1\nkind: Pod\nspec: {}\n",
        &[
            "1:1: there are no servers in this file | it should have the key `servers`, or be a file of another client with \
         `mcpServers`",
        ],
    );
    check("- a\n", &["1:1: `the file` must be a map, not a list"]);
}

#[test]
fn wrong_types_are_named() {
    check("servers: [a]\n", &["1:10: `servers` must be a map with a key for each server, not a list"]);
    check("servers: {a: npx}\n", &["1:14: `a` must be a map, not text"]);
    check_server("args: -v", &["4:11: `args` must be a list of texts, not text | write `args: [\"…\"]`"]);
    check_server("args: [[x]]", &["4:12: `args` must be text, not a list"]);
    check_server("args: [~]", &["4:12: `args` has an empty item"]);
    check_server("enabled: yes", &["4:14: `enabled` must be true or false, not text | write true"]);
    check_server("env: [A=b]", &["4:10: `env` must be a map with a key for each variable, not a list"]);
    check_server(
        "timeout: 60s",
        &["4:14: `timeout` must be a number of seconds, not text | write a number without quotes or unit"],
    );
    check(
        "servers: {a: {command: {x: y}}}\n",
        &["1:24: `command` must be a list of texts or text, not a map"],
    );
    check("secrets: {KEY: hunter2}\nservers: {}\n", &["1:16: `KEY` must be a map, not text"]);
}

#[test]
fn bad_values_are_named() {
    check("names: prefx\n", &["1:8: `names` cannot be `prefx` | did you mean `prefix`?"]);
    check_server(
        "lifecycle: forever",
        &["4:16: `lifecycle` cannot be `forever` | choose one of `session`, `workspace`, `shared`, `call`"],
    );
    check_server(
        "timeout: 0",
        &["4:14: `timeout` cannot be 0 | a number of seconds greater than 0, such as 60 or 0.5"],
    );
    check_server(
        "fence: {memory: 2X, processes: 1.5}",
        &[
            "4:21: `memory` cannot be `2X` | such as 512M or 2G",
            "4:36: `processes` must be a whole number from 1, not 1.5",
        ],
    );
    check_server(
        "env: {1A: x, B: }",
        &[
            "4:11: `1A` cannot be the name of a variable | names are letters, digits and `_`, and do not begin with a digit",
            "4:19: `B` has no value | write \"${B}\" to pass on ringfence's own, or \"\" for an empty one",
        ],
    );
    check_server(
        "args: [\"{session_id}\", \"${A\"]",
        &[
            "4:12: `args`: `{session_id}` is not a placeholder | write {sessionId}",
            "4:28: `args`: `${` is never closed | write ${NAME} for a variable, and $${ where ${ itself is meant",
        ],
    );
    check(
        "servers: {a: {command: []}, b: {command: ' '}, c: {command: \"x 'y\"}}\n",
        &[
            "1:24: `command` names no program | name one, or remove the key",
            "1:42: `command` names no program | name one, or remove the key",
            "1:61: `command` has a quote or a placeholder that is not closed where its word ends | write the words as a list: [program, \"argument with spaces\"]",
        ],
    );
    check("servers: {a: {url: example.com}}\n", &["1:20: `url` must begin with https:// or http://"]);
    check(
        "servers: {a: {url: \"http://x\", headers: {\"a b\": x, c: \"x\\ny\"}}}\n",
        &[
            "1:42: `a b` cannot be the name of a header | names of headers are letters, digits and `-`",
            "1:55: `c` has a line break in it",
        ],
    );
    check(
        "workspaces: {srv: {}}\nprincipals: {a: {secrets: {K: {}}, }, b: {secrets: {K: {env: A, file: /b}}}}\n",
        &[
            "1:14: `srv` cannot be the name of a directory | write the absolute path",
            "2:31: a secret has either `env` or `file`",
            "2:56: a secret has either `env` or `file`",
        ],
    );
}

#[test]
fn bad_and_repeated_names_are_named() {
    let hint = "names are 1 to 32 letters, digits, `-` and `_`";
    let long = "x".repeat(33);
    check(
        &format!("servers:\n  my server: {{command: [x]}}\n  {long}: {{command: [x]}}\n"),
        &[
            &format!("2:3: `my server` cannot be the name of a server | {hint}"),
            &format!("3:3: `{long}` cannot be the name of a server | {hint}"),
        ],
    );
    check(
        "servers:\n  a: {command: [x]}\n  a: {command: [y]}\n",
        &["3:3: the server `a` occurs twice; first in line 2"],
    );
    check("names: none\nnames: none\n", &["2:1: the key `names` occurs twice; first in line 1"]);
    check_server(
        "tools: {aliases: {a: web search, b: c, d: c}}",
        &[
            "4:26: `web search` cannot be the name of a tool | names are 1 to 64 letters, digits, `-` and `_`",
            "4:47: two tools are called `c`; the other in line 4",
        ],
    );
    check(
        "servers:\n  a: {command: [x], tools: {aliases: {t: find}}}\n  b: {command: [x], tools: {aliases: {u: find}}}\n",
        &["3:42: two tools are called `find`; the other in line 2"],
    );
}

#[test]
fn contradictions_are_named() {
    check(
        "servers: {a: {command: [x], url: \"http://x\"}}\n",
        &["1:34: `a` has both `command` and `url` | a server is run or reached, not both"],
    );
    check_server("bearerToken: ${T}", &["4:18: `bearerToken` means something only beside `url`"]);
    check(
        "servers: {a: {url: \"http://x\", args: [x]}}\n",
        &["1:38: `args` means something only beside `command`"],
    );
    check(
        "servers: {a: {url: \"http://x\", bearerToken: \"${T}\", headers: {authorization: \"${T}\"}}}\n",
        &["1:45: both `bearerToken` and the header `authorization`"],
    );
    check_server(
        "overridable: true\n    env: {KEY: \"${KEY}\"}",
        &[
            "4:18: `a` cannot be overridable: it has secrets, which would leave this machine | leave `overridable` out, or \
         the variables and tokens",
        ],
    );
    check_server(
        "enabled: true\n    disabled: true",
        &["5:15: `enabled` and `disabled` contradict each other"],
    );
    check_server(
        "cwd: /a\n    workingDirectory: /b",
        &["4:10: both `workingDirectory` and `cwd`, which mean the same"],
    );
    check_server(
        "fence: {allowHosts: [x.example]}",
        &["4:25: `allowHosts` means something only with `network: http` | add it, or leave the hosts out"],
    );
    check_server(
        "fence: {unfenced: true, network: none}",
        &["4:23: `unfenced` contradicts the other rules of this fence"],
    );
    check_server("timeout: 9\n    maxTimeout: 8", &["5:17: `maxTimeout` is shorter than `timeout`"]);
    check_server(
        "args: [\"{storage}\"]",
        &["2:3: `a` uses {storage} but has none | add `storage: persistent`"],
    );
}

#[test]
fn syntax_errors_have_a_place() {
    check("servers:\n  a: b: c\n", &["2:7: mapping values are not allowed in this context"]);
    check("a: 1\n---\nb: 2\n", &["2:1: a second document: one file is one document"]);
    check("a: &x [*x]\n", &["1:8: this alias is inside the node that it names"]);
    check("a: !mine x\n", &["1:4: tags are not supported"]);
    check("[a]: b\n", &["1:1: a key must be text"]);
    let json = "/etc/rf/c.json";
    assert_eq!(
        wrong("{\n  \"servers\": {\n    \"a\" 1\n", json),
        ["3:9: Expected colon after the string or word in object property"]
    );
    assert_eq!(
        wrong("{\"servers\": {\"é\": 1, \"b\": {\"x\": 1}}}", json),
        [
            "1:14: `é` cannot be the name of a server | names are 1 to 32 letters, digits, `-` and `_`",
            "1:19: `é` must be a map, not a number",
            "1:28: unknown key `x` | known here: command, args, url, headers, bearerToken, executionContext, overridable, \
         enabled, disabled, env, envFile, workingDirectory, cwd, allowedDirectories, lifecycle, storage, start, \
         allowInstallScripts, fence, timeout, maxTimeout, startTimeout, tools",
        ]
    );
}

#[test]
fn all_errors_are_told_in_the_order_of_the_file() {
    let text = "names: 3\nservers:\n  b!: {command: [x], lifecycle: x}\n  a: {url: x, start: now}\nlocalExecution: there\n";
    let lines: Vec<_> =
        wrong(text, FILE).iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["1:8", "3:3", "3:33", "4:12", "4:22", "5:17"]);
}

#[test]
fn everything_is_bounded() {
    let deep = format!("servers: {}{}\n", "[".repeat(40), "]".repeat(40));
    check(&deep, &["1:42: nested deeper than 32 levels"]);
    let deeper = format!("servers: {}\n", "[".repeat(10_000));
    assert_eq!(wrong(&deeper, FILE).len(), 1);
    assert_eq!(
        wrong(&format!("{{\"servers\": {}{}}}", "[".repeat(40), "]".repeat(40)), "/c.json"),
        ["1:45: nested deeper than 32 levels"]
    );
    assert_eq!(wrong(&"[".repeat(10_000), "/c.json").len(), 1);
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}", level - 1);
        writeln!(laughs, "a{level}: &a{level} [{}]", vec![before; 10].join(", ")).unwrap();
    }
    assert_eq!(wrong(&laughs, FILE).len(), 1);
    assert!(wrong(&laughs, FILE)[0].ends_with("more than 200000 values, aliases included"));
    let many = (0..257).map(|number| format!("  s{number}: {{command: [x]}}")).collect::<Vec<_>>().join("\n");
    check(&format!("servers:\n{many}\n"), &["258:3: more than 256 servers"]);
    check(&"#".repeat((1 << 20) + 1), &["1:1: the file is longer than 1 MiB"]);
}
