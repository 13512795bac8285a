//! Properties of every profile: it parses back to what was written, its rules are in the right order, and it contains
//! nothing that it must not.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::super::evaluate::{items, operations, symbol_name};
use super::super::expression::{Expression, form, read_all, symbol, text};
use super::super::{
    PathError, PathList, SANDBOX_EXEC, SeatbeltError, refuse_linked_writable, sandbox_exec_arguments, system,
};
use super::*;

fn every_request() -> Vec<SeatbeltRequest> {
    let mut requests = Vec::new();
    for network in EVERY_NETWORK {
        for request in [plain_request(), full_request()] {
            let open = SeatbeltRequest { network, read: SeatbeltRead::Open, ..request.clone() };
            requests.extend([SeatbeltRequest { network, ..request }, open]);
        }
    }
    requests
}

fn rules(request: &SeatbeltRequest) -> Vec<Expression> {
    read_all(&made(request).text).unwrap()
}

/// Collects the strings of an expression: those of `(param …)` in `keys`, all others in `plain`.
fn strings(expression: &Expression, plain: &mut Vec<String>, keys: &mut BTreeSet<String>) {
    match expression {
        Expression::List(parts) => match &parts[..] {
            [Expression::Symbol(head), Expression::Text(key)] if head == "param" => {
                keys.insert(key.clone());
            }
            parts => parts.iter().for_each(|part| strings(part, plain, keys)),
        },
        Expression::Text(content) => plain.push(content.clone()),
        Expression::Symbol(_) => {}
    }
}

fn rule_position(rules: &[Expression], action: &str, operation: &str) -> Vec<usize> {
    let is_meant = |rule: &Expression| {
        symbol_name(&items(rule)[0]) == action && operations(items(rule)).any(|name| name == operation)
    };
    rules.iter().enumerate().filter(|(_, rule)| is_meant(rule)).map(|(index, _)| index).collect()
}

#[test]
fn profiles_read_back_and_say_the_same_when_written_again() {
    for request in every_request() {
        let text = made(&request).text;
        let mut again = String::new();
        for rule in read_all(&text).unwrap() {
            rule.write(0, &mut again);
            again.push('\n');
        }
        let uncommented: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with(';')).collect();
        assert_eq!(again.lines().collect::<Vec<_>>(), uncommented);
    }
}

#[test]
fn strings_unescape_to_what_they_were() {
    let hostile = r#"a "quoted" (name) with \ and ; and # and ünïcödé"#;
    let expression = form("literal", [text(hostile), symbol("x")]);
    let mut written = String::new();
    expression.write(0, &mut written);
    assert_eq!(read_all(&written).unwrap(), [expression]);
}

#[test]
fn broken_texts_are_not_read() {
    for broken in ["(", "(a", ")", "\"a", "(a \"\\n\")", "(a))", "#\"a\"", "(é)"] {
        assert!(read_all(broken).is_err(), "{broken}");
    }
}

#[test]
fn every_parameter_is_used_and_every_use_has_one() {
    for request in every_request() {
        let profile = made(&request);
        let (mut plain, mut used) = (Vec::new(), BTreeSet::new());
        for rule in read_all(&profile.text).unwrap() {
            strings(&rule, &mut plain, &mut used);
        }
        let given: BTreeSet<String> = profile.parameters.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(given, used);
        assert_eq!(given.len(), profile.parameters.len(), "a key stands for one path");
        assert!(given.iter().all(|key| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')));
    }
}

#[test]
fn strings_in_the_text_are_the_systems_own() {
    for request in every_request() {
        let (mut plain, mut keys) = (Vec::new(), BTreeSet::new());
        for rule in rules(&request) {
            strings(&rule, &mut plain, &mut keys);
        }
        for content in plain.iter().filter(|content| content.starts_with('/')) {
            let lists =
                [system::READABLE_FILES, system::READABLE_TREES, system::VISIBLE, system::RESOLVER_SOCKETS];
            let is_known = lists.iter().any(|list| list.contains(&content.as_str()));
            assert!(
                is_known || ["/dev/null", "/dev/ptmx", "/dev/tty"].contains(&content.as_str()),
                "{content}"
            );
        }
    }
}

#[test]
fn no_path_of_a_request_is_in_the_text() {
    for request in every_request() {
        let text = made(&request).text;
        for private in ["/ada", "/session", "/node", "/tools", "/hooks", "/vault", "agent.sock"] {
            assert!(!text.contains(private), "{private}");
        }
    }
}

#[test]
fn everything_is_denied_first() {
    for request in every_request() {
        let rules = rules(&request);
        assert_eq!(rules[0], form("version", [symbol("1")]));
        assert_eq!(rule_position(&rules, "deny", "default"), [1]);
        let message = form("with", [symbol("message"), text("ringfence-test")]);
        assert_eq!(rules[1], form("deny", [symbol("default"), message]));
        let beyond_default: Vec<&str> = operations(items(&rules[2])).collect();
        assert_eq!(beyond_default, ["process-info*", "nvram*", "file-link", "file-clone"]);
        assert_eq!(items(&rules[2]).len(), 6, "without any condition but its tag");
    }
}

#[test]
fn every_denial_carries_the_tag() {
    for rule in rules(&full_request()) {
        let items = items(&rule);
        if symbol_name(&items[0]) == "deny" {
            assert_eq!(items.last(), Some(&form("with", [symbol("message"), text("ringfence-test")])));
        }
    }
}

#[test]
fn nested_denials_come_after_the_last_permission() {
    let rules = rules(&full_request());
    let last_allow = rules.iter().rposition(|rule| symbol_name(&items(rule)[0]) == "allow").unwrap();
    for operation in ["file-write*", "file-read*", "file-write-unlink", "file-write-create"] {
        let denials = rule_position(&rules, "deny", operation);
        assert!(!denials.is_empty(), "{operation}");
        assert!(denials.iter().all(|denial| *denial > last_allow), "{operation}");
    }
}

/// The permissions already leave these paths out; the denials are a second safeguard.
#[test]
fn protected_and_denied_paths_are_denied_again_by_name() {
    let profile = made(&full_request());
    let rules = read_all(&profile.text).unwrap();
    let mut named = BTreeSet::new();
    for position in rule_position(&rules, "deny", "file-write*") {
        assert!(operations(items(&rules[position])).any(|name| name == "file-link"));
        strings(&rules[position], &mut Vec::new(), &mut named);
    }
    let is_inner = |key: &&String| key.starts_with("PROTECTED_") || key.starts_with("DENIED_");
    let inner: BTreeSet<String> =
        profile.parameters.iter().map(|(key, _)| key).filter(is_inner).cloned().collect();
    assert_eq!(named, inner);
}

#[test]
fn roots_and_all_above_them_stay_where_they_are() {
    let profile = made(&full_request());
    let rules = read_all(&profile.text).unwrap();
    let [position] = rule_position(&rules, "deny", "file-write-unlink")[..] else { panic!("not one rule") };
    let mut keys = BTreeSet::new();
    strings(&rules[position], &mut Vec::new(), &mut keys);
    let fixed: BTreeSet<&str> = profile
        .parameters
        .iter()
        .filter(|(key, _)| keys.contains(key))
        .map(|(_, path)| path.as_str())
        .collect();
    let expected = [
        "/Users/ada/work",
        "/Users/ada",
        "/Users",
        "/Users/ada/work/.git",
        "/Users/ada/work/vault",
        "/private/tmp/session",
        "/private/tmp",
        "/private",
        "/tmp/session",
        "/tmp",
        "/private/etc/ssl",
        "/private/etc",
        "/etc/ssl",
        "/etc",
    ];
    assert_eq!(fixed, BTreeSet::from(expected));
    let is_about_directories = format!("{:?}", rules[position]).contains("DIRECTORY");
    assert!(is_about_directories);
}

#[test]
fn paths_below_the_systems_links_have_a_twin_in_both_directions() {
    for top in ["/tmp", "/var", "/etc"] {
        for given in [format!("{top}/a/b"), format!("/private{top}/a/b"), format!("/private{top}//a/./b/")] {
            let writable = vec![PathBuf::from(&given)];
            let protected = vec![PathBuf::from(&given).join("keep")];
            let profile = made(&SeatbeltRequest { writable, protected, ..plain_request() });
            let value = |key: &str| {
                profile.parameters.iter().find(|(name, _)| name == key).map(|(_, path)| path.clone()).unwrap()
            };
            assert_eq!(value("WRITABLE_0"), format!("/private{top}/a/b"), "{given}");
            assert_eq!(value("WRITABLE_1"), format!("{top}/a/b"), "{given}");
            assert_eq!(value("PROTECTED_0"), format!("/private{top}/a/b/keep"), "{given}");
            assert_eq!(value("PROTECTED_1"), format!("{top}/a/b/keep"), "{given}");
        }
    }
    let request = SeatbeltRequest { writable: paths(&["/tmpfiles/a", "/private/varied"]), ..plain_request() };
    assert!(made(&request).parameters.iter().all(|(_, path)| !path.starts_with("/private/tmp")));
    assert!(made(&request).parameters.iter().all(|(_, path)| path != "/varied"));
}

#[test]
fn two_spellings_of_one_path_are_one_path() {
    let twice = SeatbeltRequest { writable: paths(&["/tmp/a", "/private/tmp/a/"]), ..plain_request() };
    let once = SeatbeltRequest { writable: paths(&["/tmp/a"]), ..plain_request() };
    assert_eq!(made(&twice), made(&once));
}

#[test]
fn outbound_rules_never_look_at_the_local_side() {
    for request in every_request() {
        for rule in rules(&request) {
            let is_outbound =
                operations(items(&rule)).any(|name| matches!(name, "network-outbound" | "network*"));
            let is_local =
                |item: &&Expression| matches!(item, Expression::List(parts) if parts[0] == symbol("local"));
            assert!(!is_outbound || !items(&rule).iter().any(|item| is_local(&item)), "{rule:?}");
            let has_filter = items(&rule).iter().any(|item| matches!(item, Expression::List(_)));
            assert!(!is_outbound || has_filter, "unfiltered, it would reach every socket of every program");
        }
    }
}

#[test]
fn without_a_network_there_is_no_rule_about_it_and_no_trustd() {
    let text = made(&plain_request()).text;
    for absent in ["network", "system-socket", "trustd", "SecurityServer", "mDNSResponder"] {
        assert!(!text.contains(absent), "{absent}");
    }
    for network in [SeatbeltNetwork::Localhost, SeatbeltNetwork::Proxy { port: 1 }, SeatbeltNetwork::All] {
        let text = made(&SeatbeltRequest { network, ..plain_request() }).text;
        assert!(text.contains("com.apple.trustd.agent"));
        assert_eq!(text.contains("mDNSResponder"), network == SeatbeltNetwork::All);
    }
}

#[test]
fn the_proxy_is_the_only_place_that_its_mode_reaches() {
    let network = SeatbeltNetwork::Proxy { port: 65535 };
    let rules = rules(&SeatbeltRequest { network, ..plain_request() });
    let [position] = rule_position(&rules, "allow", "network-outbound")[..] else { panic!("not one rule") };
    let remote = form("remote", [symbol("ip"), text("localhost:65535")]);
    assert_eq!(rules[position], form("allow", [symbol("network-outbound"), remote]));
    assert!(rule_position(&rules, "allow", "network-bind").is_empty());
}

#[test]
fn other_programs_do_not_act_for_the_command() {
    for request in every_request() {
        let text = made(&request).text;
        for absent in
            ["appleevent", "lsopen", "securityd", "keychain", "secd", "launchservicesd", "kern.proc"]
        {
            assert!(!text.contains(absent), "{absent}");
        }
        assert!(!text.contains("(allow mach-lookup)"));
    }
}

#[test]
fn preferences_are_for_those_who_may_read_everything() {
    assert!(made(&plain_request()).text.contains("cfprefsd"));
    let denied = SeatbeltRequest { deny_read: paths(&["/Users/ada/.ssh"]), ..plain_request() };
    for request in [denied, SeatbeltRequest { read: strict(&[]), ..plain_request() }] {
        let text = made(&request).text;
        assert!(!text.contains("cfprefs") && !text.contains("user-preference-read"));
    }
}

#[test]
fn terminals_are_opt_in() {
    assert!(!made(&plain_request()).text.contains("pseudo-tty"));
    assert!(made(&SeatbeltRequest { pty: true, ..plain_request() }).text.contains("(allow pseudo-tty)"));
}

#[test]
fn denied_directories_deny_their_sockets_too() {
    let (unix_sockets, deny_read) = (paths(&["/"]), paths(&["/Users/ada/.gnupg"]));
    let rules = rules(&SeatbeltRequest { deny_read, unix_sockets, ..plain_request() });
    let [allowed] = rule_position(&rules, "allow", "network-outbound")[..] else { panic!("not one rule") };
    let [denied] = rule_position(&rules, "deny", "network-outbound")[..] else { panic!("not one rule") };
    assert!(allowed < denied);
}

#[test]
fn system_lists_are_sorted_and_have_no_repetitions() {
    let lists = [
        system::SYSCTL_NAMES,
        system::SYSCTL_PREFIXES,
        system::MACH_ALWAYS,
        system::MACH_NETWORK,
        system::MACH_PREFERENCES,
        system::RESOLVER_SOCKETS,
        system::READABLE_FILES,
        system::READABLE_TREES,
        system::VISIBLE,
    ];
    for list in lists {
        assert!(list.is_sorted_by(|left, right| left < right), "{list:?}");
    }
}

#[test]
fn everything_above_what_the_system_reads_is_visible() {
    for path in system::READABLE_FILES.iter().chain(system::READABLE_TREES) {
        for above in Path::new(path).ancestors().skip(1) {
            let above = above.to_str().unwrap();
            let is_readable = system::READABLE_TREES.iter().any(|tree| Path::new(above).starts_with(tree));
            assert!(above == "/" || is_readable || system::VISIBLE.contains(&above), "{above}");
        }
    }
}

#[test]
fn arguments_are_in_the_order_that_sandbox_exec_takes() {
    let profile = SeatbeltProfile {
        text: "(version 1)".to_owned(),
        parameters: vec![("A_0".to_owned(), "/a=b c".to_owned()), ("A_1".to_owned(), "/d".to_owned())],
    };
    let given = [OsString::from("-x"), OsString::from("--")];
    let arguments = sandbox_exec_arguments(&profile, Path::new("/usr/bin/node"), &given);
    let expected =
        ["-p", "(version 1)", "-D", "A_0=/a=b c", "-D", "A_1=/d", "--", "/usr/bin/node", "-x", "--"];
    assert_eq!(arguments, expected.map(OsStr::new));
    assert!(Path::new(SANDBOX_EXEC).is_absolute());
}

#[test]
fn unsound_requests_are_refused_with_words_that_anyone_may_see() {
    let refused = |request: SeatbeltRequest| profile(&request).unwrap_err();
    let path = |list, number, error| SeatbeltError::Path { list, number, error };

    assert_eq!(refused(SeatbeltRequest { writable: vec![], ..plain_request() }), SeatbeltError::NoWritable);
    let error = refused(SeatbeltRequest { writable: paths(&["/a", "b"]), ..plain_request() });
    assert_eq!(error, path(PathList::Writable, 2, PathError::NotAbsolute));
    assert_eq!(error.to_string(), "writable path 2 is not absolute");
    let error = refused(SeatbeltRequest { deny_read: paths(&[""]), ..plain_request() });
    assert_eq!(error, path(PathList::DenyRead, 1, PathError::NotAbsolute));
    let error = refused(SeatbeltRequest { protected: paths(&["/a/../b"]), ..plain_request() });
    assert_eq!(error, path(PathList::Protected, 1, PathError::ParentStep));
    for request in [
        SeatbeltRequest { writable: paths(&["/"]), ..plain_request() },
        SeatbeltRequest { protected: paths(&["//."]), ..plain_request() },
        SeatbeltRequest { deny_read: paths(&["/"]), ..plain_request() },
        SeatbeltRequest { read: strict(&["/"]), ..plain_request() },
    ] {
        assert!(refused(request).to_string().ends_with("is the whole file system"));
    }
    let error = refused(SeatbeltRequest { network: SeatbeltNetwork::Proxy { port: 0 }, ..plain_request() });
    assert_eq!(error, SeatbeltError::ProxyPort);
    for tag in ["", "a b", "a\"b", "a\\", "a)", "é", "a\n", &"x".repeat(65)] {
        let error = refused(SeatbeltRequest { tag: tag.to_owned(), ..plain_request() });
        assert_eq!(error, SeatbeltError::Tag, "{tag:?}");
    }
}

#[test]
fn a_workspace_inside_a_denied_directory_is_refused() {
    for (writable, denied) in [("/tmp/a/b", "/private/tmp/a"), ("/Users/ada", "/Users/ada")] {
        let (writable, deny_read) = (paths(&["/w", writable]), paths(&["/x", denied]));
        let error = profile(&SeatbeltRequest { writable, deny_read, ..plain_request() }).unwrap_err();
        assert_eq!(error, SeatbeltError::WritableIsDenied { writable: 2, denied: 2 });
    }
}

#[test]
fn only_the_systems_own_links_may_lead_to_a_workspace() {
    let request = |writable| SeatbeltRequest { writable: paths(&[writable]), ..plain_request() };
    let is_link =
        |path: &Path| ["/tmp", "/var", "/etc", "/Users/ada/link"].iter().any(|link| path == Path::new(link));
    assert_eq!(refuse_linked_writable(&request("/tmp/a"), is_link), Ok(()));
    assert_eq!(refuse_linked_writable(&request("/Users/ada/work"), is_link), Ok(()));
    for linked in ["/Users/ada/link", "/Users/ada/link/a/b"] {
        let error = refuse_linked_writable(&request(linked), is_link).unwrap_err();
        assert_eq!(error.to_string(), "writable path 1 has a symbolic link in it");
    }
}
