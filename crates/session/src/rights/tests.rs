//! What principals may do by the configuration and the command line.

use config::Configuration;

use super::*;

fn grants(text: &str) -> Grants {
    let read = Configuration::parse(text, Path::new("/etc/c.yaml")).unwrap();
    Grants { principals: read.configuration.principals, ..Grants::default() }
}

fn rights(grants: &Grants, name: &str) -> Rights {
    let book = RightsBook::of_grants(grants.clone());
    book.of(&Principal::named(name).unwrap(), Timestamp::UNIX_EPOCH).unwrap()
}

fn admits(rights: &Rights, directory: &str) -> bool {
    rights.holding(Path::new(directory)).is_none_or(|holding| !holding.is_empty())
}

#[test]
fn without_tokens_nothing_is_limited() {
    let rights = RightsBook::default().of(&Principal::anonymous(), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(rights, Rights::default());
    assert!(admits(&rights, "/anywhere") && rights.knows_secrets_of(Path::new("/anywhere")));
    assert!(rights.opens("docs", Path::new("/srv/docs")) && rights.has_server("any"));
    assert_eq!(rights.default_scope(&["/here".into()]), Some(vec!["/here".into()]));
    assert_eq!((rights.sessions, rights.calls_per_second), (None, None), "the settings decide");
}

#[test]
fn a_principal_that_nobody_mentions_gets_no_directory_by_naming_one() {
    let rights = rights(&Grants::default(), "bob");
    assert!(!admits(&rights, "/srv/bob") && !admits(&rights, "/"));
    assert_eq!(rights.default_scope(&["/here".into()]), Some(vec!["/here".into()]), "what the operator set");
    assert_eq!((rights.sessions, rights.calls_per_second.map(NonZeroU32::get)), (Some(50), Some(50)));
}

#[test]
fn a_directory_of_another_principal_is_refused_from_above_and_below() {
    let mut grants = grants("principals: {alice: {scopes: [/srv/alice]}, default: {scopes: [/srv]}}\n");
    for scopes in [vec![], vec![PathBuf::from("/")]] {
        grants.scopes = scopes;
        let (alice, bob) = (rights(&grants, "alice"), rights(&grants, "bob"));
        for own in ["/srv/alice", "/srv/alice/shop"] {
            assert!(admits(&alice, own) && alice.owns(Path::new(own)));
            assert!(!admits(&bob, own), "{own}");
        }
        assert!(!admits(&alice, "/srv") && !admits(&alice, "/srv/alices"));
        assert!(!admits(&bob, "/srv") && !admits(&bob, "/"), "it would hold the other's");
        assert!(admits(&bob, "/srv/bob") && !bob.owns(Path::new("/srv/bob")));
        assert_eq!(bob.default_scope(&["/srv".into()]), None);
    }
}

#[test]
fn a_directory_that_is_listed_for_two_is_both_of_theirs() {
    let grants = grants(
        "principals: {alice: {scopes: [/srv/shop]}, bob: {scopes: [/srv]}}\n\
         groups: {web: {members: [carol], scopes: [/srv/shop]}}\n",
    );
    for name in ["alice", "bob", "carol"] {
        let rights = rights(&grants, name);
        assert!(admits(&rights, "/srv/shop") && rights.owns(Path::new("/srv/shop")), "{name}");
    }
    assert!(!admits(&rights(&grants, "dave"), "/srv/shop"));
}

#[test]
fn the_command_line_gives_directories_to_entries_that_name_none() {
    let mut grants =
        grants("principals: {alice: {readOnly: true}, bob: {scopes: []}, carol: {scopes: [/c]}}\n");
    grants.scopes = vec!["/projects".into()];
    assert!(
        admits(&rights(&grants, "alice"), "/projects/a") && rights(&grants, "alice").restriction.read_only
    );
    assert!(!admits(&rights(&grants, "bob"), "/projects/a"));
    assert!(!admits(&rights(&grants, "carol"), "/projects/a"));
    assert!(admits(&rights(&grants, "dave"), "/projects/a"));
}

#[test]
fn a_client_that_names_nothing_stays_in_the_directories_of_its_principal() {
    let grants =
        grants("principals: {alice: {scopes: [/a, /b]}, bob: {scopes: []}, carol: {scopes: [/work]}}\n");
    let by_default = |name: &str, at: &str| rights(&grants, name).default_scope(&[at.into()]);
    assert_eq!(by_default("alice", "/b/x"), Some(vec!["/b/x".into()]));
    assert_eq!(by_default("alice", "/elsewhere"), Some(vec!["/a".into()]));
    assert_eq!(by_default("bob", "/elsewhere"), None);
    assert_eq!(by_default("dave", "/elsewhere"), Some(vec!["/elsewhere".into()]));
    assert_eq!(by_default("dave", "/work"), None, "another principal's");
}

#[test]
fn names_of_workspaces_are_for_those_who_list_them_or_for_all() {
    let mut grants = grants("principals: {alice: {workspaces: [docs]}, bob: {workspaces: []}}\n");
    grants.workspaces =
        BTreeMap::from([("docs".to_owned(), "/srv/docs".into()), ("wiki".to_owned(), "/srv/wiki".into())]);
    let opens = |name: &str| {
        let rights = rights(&grants, name);
        ["docs", "wiki"].map(|workspace| rights.opens(workspace, &grants.workspaces[workspace]))
    };
    assert_eq!(opens("alice"), [true, false]);
    assert_eq!(opens("bob"), [false, false]);
    assert_eq!(opens("carol"), [false, true], "the one that is listed for nobody in particular");
    assert!(rights(&grants, "alice").owns(Path::new("/srv/docs")));
}

#[test]
fn secrets_of_a_workspace_are_for_those_who_may_work_in_it() {
    let grants = grants("principals: {alice: {scopes: [/srv/shop]}, bob: {scopes: [/srv/shop/web]}}\n");
    let knows = |name: &str| rights(&grants, name).knows_secrets_of(Path::new("/srv/shop"));
    assert_eq!(["alice", "bob", "carol"].map(knows), [true, false, false]);
}

#[test]
fn limits_are_those_of_the_entry_then_of_the_command_line() {
    let mut grants = grants("principals: {alice: {limits: {sessions: 2, callsPerSecond: 3, memory: 1G}}}\n");
    grants.sessions = Some(7);
    let (alice, bob) = (rights(&grants, "alice"), rights(&grants, "bob"));
    assert_eq!((alice.sessions, alice.calls_per_second.map(NonZeroU32::get)), (Some(2), Some(3)));
    assert_eq!(alice.restriction.memory_bytes, Some(1 << 30));
    assert_eq!((bob.sessions, bob.calls_per_second.map(NonZeroU32::get)), (Some(7), Some(50)));
    assert_eq!(bob.restriction, Restriction::default());
}

#[test]
fn access_ends_at_its_time() {
    let book = RightsBook::of_grants(grants("principals: {alice: {expires: 2026-06-30T12:00:00Z}}\n"));
    let at = |time: &str| book.of(&Principal::named("alice").unwrap(), time.parse().unwrap()).is_ok();
    assert!(at("2026-06-30T11:59:59Z") && !at("2026-06-30T12:00:00Z"));
    let has_expired =
        |time: &str| book.has_expired(&Principal::named("alice").unwrap(), time.parse().unwrap());
    assert!(!has_expired("2026-06-30T11:59:59Z") && has_expired("2026-06-30T12:00:00Z"));
}

#[test]
fn a_session_goes_on_only_with_rights_that_give_it_all_that_it_has() {
    let of = |entry: &str| rights(&grants(&format!("principals: {{alice: {{{entry}}}}}\n")), "alice");
    let scope = |path: &str| Working { directories: vec![path.into()], is_default: false };
    let before = of("scopes: [/a, /b]");
    assert!(of("scopes: [/a]").suit(&before, Some(&scope("/a"))));
    assert!(!of("scopes: [/a]").suit(&before, Some(&scope("/b"))));
    assert!(!of("scopes: [/a]").suit(&before, None), "it may name /b yet");
    assert!(of("scopes: [/a, /b]").suit(&before, None));
    for less in ["readOnly: true", "servers: []", "tools: {deny: [x]}", "limits: {memory: 1M}"] {
        assert!(!of(&format!("scopes: [/a], {less}")).suit(&before, Some(&scope("/a"))), "{less}");
    }
}
