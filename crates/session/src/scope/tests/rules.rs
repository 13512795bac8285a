//! Which directories a client gets for the roots or workspace that it names.

use std::os::unix::fs::{MetadataExt, symlink};

use testkit::{WorkspaceDir, workspace_dir};

use super::*;
use crate::testing::rules;

/// A directory with two projects, `a` and `b`.
fn projects() -> WorkspaceDir {
    let directory = workspace_dir("scope");
    for name in ["a", "b"] {
        std::fs::create_dir(directory.join(name)).unwrap();
    }
    directory
}

fn uri(path: &Path) -> String {
    wire::file_uri(path.as_os_str().as_bytes())
}

fn named(paths: &[PathBuf]) -> RootsAnswer {
    RootsAnswer::Named(paths.iter().map(|path| uri(path)).collect())
}

fn path_choice(path: &Path) -> WorkspaceChoice {
    WorkspaceChoice::NamedOrPath(path.to_str().unwrap().to_owned())
}

#[test]
fn the_first_root_or_all_of_them_make_the_scope() {
    let directory = projects();
    let [a, b] = ["a", "b"].map(|name| directory.join(name));
    for (roots, expected) in
        [(RootsChoice::First, vec![a.clone()]), (RootsChoice::All, vec![a.clone(), b.clone()])]
    {
        let scope = ScopeRules { roots, ..rules() }
            .of_roots(named(&[a.clone(), b.clone()]), &Rights::default())
            .unwrap();
        assert_eq!((scope.paths(), scope.source()), (expected, ScopeSource::Roots));
        assert_eq!(scope.primary(), Some(&*a));
    }
}

#[test]
fn a_root_that_is_named_twice_counts_once() {
    let directory = projects();
    let a = directory.join("a");
    let link = directory.join("link");
    symlink(&a, &link).unwrap();
    let all = ScopeRules { roots: RootsChoice::All, ..rules() };
    assert_eq!(all.of_roots(named(&[a.clone(), link, a.clone()]), &Rights::default()).unwrap().paths(), [a]);
}

#[test]
fn roots_that_are_not_used_need_not_exist() {
    let directory = projects();
    let roots = named(&[directory.join("a"), directory.join("missing")]);
    assert!(rules().of_roots(roots, &Rights::default()).is_ok());
    let roots = named(&[directory.join("a"), directory.join("missing")]);
    let all = ScopeRules { roots: RootsChoice::All, ..rules() };
    assert!(matches!(
        all.of_roots(roots, &Rights::default()),
        Err(ScopeRefusal::Directory(ScopeError::Missing(_)))
    ));
}

#[test]
fn a_root_that_cannot_be_read_is_refused_with_its_reason() {
    let answer = RootsAnswer::Named(vec![format!("https://example.org/{}", "x".repeat(1000))]);
    let Err(ScopeRefusal::Root { uri, reason }) = rules().of_roots(answer, &Rights::default()) else {
        panic!("refused")
    };
    assert_eq!((reason, uri.len()), (RootError::Uri(wire::FileUriError::NotAFile), MAX_QUOTED));
}

#[test]
fn an_answer_that_cannot_be_used_is_refused_and_an_empty_one_means_the_default() {
    let bad = rules().of_roots(RootsAnswer::Malformed("words".to_owned()), &Rights::default());
    assert_eq!(bad.unwrap_err(), ScopeRefusal::BadAnswer("words".to_owned()));
    assert_eq!(rules().of_roots(RootsAnswer::None, &Rights::default()).unwrap_err(), ScopeRefusal::NoDefault);

    let directory = projects();
    let default = vec![directory.join("b"), directory.join("a")];
    let scope = ScopeRules { default: Some(default.clone()), ..rules() }
        .of_roots(RootsAnswer::None, &Rights::default())
        .unwrap();
    assert_eq!((scope.paths(), scope.source()), (default, ScopeSource::Default));
}

#[test]
fn directories_outside_of_what_is_allowed_are_refused() {
    let directory = projects();
    let [a, b] = ["a", "b"].map(|name| directory.join(name));
    let allowing = ScopeRules { allowed: vec![a.clone()], ..rules() };
    let below = a.join("below");
    std::fs::create_dir(&below).unwrap();
    for inside in [&a, &below] {
        assert!(allowing.of_roots(named(std::slice::from_ref(inside)), &Rights::default()).is_ok());
        assert!(allowing.of_workspace(&path_choice(inside), &Rights::default()).is_ok());
    }
    let refusal = ScopeRefusal::NotAllowed(b.clone());
    assert_eq!(allowing.of_roots(named(std::slice::from_ref(&b)), &Rights::default()).unwrap_err(), refusal);
    assert_eq!(allowing.of_workspace(&path_choice(&b), &Rights::default()).unwrap_err(), refusal);
}

#[test]
fn a_link_that_leads_outside_of_what_is_allowed_is_refused() {
    let directory = projects();
    let [a, b] = ["a", "b"].map(|name| directory.join(name));
    let link = a.join("link");
    symlink(&b, &link).unwrap();
    let allowing = ScopeRules { allowed: vec![a], ..rules() };
    assert_eq!(
        allowing.of_roots(named(&[link]), &Rights::default()).unwrap_err(),
        ScopeRefusal::NotAllowed(b)
    );
}

#[test]
fn names_of_the_operator_need_no_further_leave() {
    let directory = projects();
    let [a, b] = ["a", "b"].map(|name| directory.join(name));
    let names = BTreeMap::from([("shop".to_owned(), b.clone())]);
    let naming = ScopeRules { allowed: vec![a], names, ..rules() };
    for choice in [WorkspaceChoice::Named, WorkspaceChoice::NamedOrPath] {
        let scope = naming.of_workspace(&choice("shop".to_owned()), &Rights::default()).unwrap();
        assert_eq!((scope.paths(), scope.source()), (vec![b.clone()], ScopeSource::Workspace));
    }
}

#[test]
fn a_path_is_a_workspace_only_where_paths_may_be_given() {
    let directory = projects();
    let a = directory.join("a").to_str().unwrap().to_owned();
    assert!(rules().of_workspace(&WorkspaceChoice::NamedOrPath(a.clone()), &Rights::default()).is_ok());
    let refused = rules().of_workspace(&WorkspaceChoice::Named(a.clone()), &Rights::default()).unwrap_err();
    assert_eq!(refused, ScopeRefusal::UnknownWorkspace(a.chars().take(MAX_QUOTED).collect()));
    for unknown in ["shop", "", "relative/path", "../a"] {
        let refused = rules()
            .of_workspace(&WorkspaceChoice::NamedOrPath(unknown.to_owned()), &Rights::default())
            .unwrap_err();
        assert_eq!(refused, ScopeRefusal::UnknownWorkspace(unknown.to_owned()));
    }
}

#[test]
fn a_path_with_steps_upwards_is_refused() {
    let refused = rules()
        .of_workspace(&WorkspaceChoice::NamedOrPath("/srv/../etc".to_owned()), &Rights::default())
        .unwrap_err();
    assert_eq!(refused, ScopeRefusal::Root { uri: "/srv/../etc".to_owned(), reason: RootError::NotPlain });
}

#[test]
fn a_workspace_elsewhere_is_a_label_and_no_directory() {
    let scope = rules()
        .of_workspace(&WorkspaceChoice::Elsewhere("/home/u/x".repeat(1000)), &Rights::default())
        .unwrap();
    assert_eq!((scope.source(), scope.paths()), (ScopeSource::Elsewhere, Vec::new()));
    assert_eq!(scope.label.unwrap().len(), MAX_LABEL);
}

#[test]
fn a_link_at_the_place_of_an_operators_directory_is_refused() {
    let directory = projects();
    let link = directory.join("link");
    symlink(directory.join("b"), &link).unwrap();
    let naming = ScopeRules {
        default: Some(vec![link.clone()]),
        names: BTreeMap::from([("shop".to_owned(), link)]),
        ..rules()
    };
    let refusal = ScopeRefusal::NotAllowed(directory.join("b"));
    assert_eq!(naming.by_default(&Rights::default()).unwrap_err(), refusal);
    assert_eq!(
        naming.of_workspace(&WorkspaceChoice::Named("shop".to_owned()), &Rights::default()).unwrap_err(),
        refusal
    );
}

#[test]
fn a_server_may_have_directories_of_its_own() {
    let directory = projects();
    let [a, b] = ["a", "b"].map(|name| directory.join(name));
    let session = rules().of_roots(named(std::slice::from_ref(&a)), &Rights::default()).unwrap();
    let scope = rules().of_operator(&[b.clone(), a.clone(), b.clone()], &session).unwrap();
    assert_eq!((scope.paths(), scope.source()), (vec![b, a], ScopeSource::Roots));
}

#[test]
fn a_link_to_a_servers_directory_may_lead_only_into_the_session() {
    let directory = projects();
    let [a, b] = ["a", "b"].map(|name| directory.join(name));
    let session = rules().of_roots(named(std::slice::from_ref(&a)), &Rights::default()).unwrap();
    let (inward, outward) = (b.join("inward"), a.join("outward"));
    symlink(&a, &inward).unwrap();
    symlink(&b, &outward).unwrap();
    assert_eq!(rules().of_operator(&[inward], &session).unwrap().paths(), [a]);
    let refused = rules().of_operator(&[outward], &session).unwrap_err();
    assert_eq!(refused, ScopeRefusal::NotAllowed(b));
}

#[test]
fn storage_is_made_for_this_user_alone() {
    let directory = projects();
    let storage = make_storage(&directory.join("a/kept/deep"), None).unwrap();
    assert_eq!(storage.path(), directory.join("a/kept/deep"));
    assert_eq!(storage.path().metadata().unwrap().mode() & 0o777, 0o700);
    let file = directory.join("file");
    std::fs::write(&file, "").unwrap();
    assert!(make_storage(&file.join("below"), None).is_err());
}

#[test]
fn servers_hear_their_roots_as_uris_with_names() {
    let directory = workspace_dir("scope");
    let project = directory.join("my project");
    std::fs::create_dir(&project).unwrap();
    let scope = rules().of_roots(named(std::slice::from_ref(&project)), &Rights::default()).unwrap();
    let answer: Value = serde_json::from_slice(&scope.roots_answer(&Id::number(3))).unwrap();
    assert_eq!(answer["id"], 3);
    assert_eq!(answer["result"]["roots"], json!([{"uri": uri(&project), "name": "my project"}]));
    assert!(uri(&project).ends_with("/my%20project"));
    let nothing: Value = serde_json::from_slice(&Scope::nothing().roots_answer(&Id::number(3))).unwrap();
    assert_eq!(nothing["result"]["roots"], json!([]));
}

#[test]
fn every_refusal_says_what_to_do() {
    let path = PathBuf::from("/srv/a");
    for refusal in [
        ScopeRefusal::Root { uri: "x".to_owned(), reason: RootError::Uri(wire::FileUriError::NotAFile) },
        ScopeRefusal::BadAnswer("x".to_owned()),
        ScopeRefusal::UnknownWorkspace("x".to_owned()),
        ScopeRefusal::Directory(ScopeError::Missing(path.clone())),
        ScopeRefusal::NotAllowed(path.clone()),
        ScopeRefusal::NoReply,
        ScopeRefusal::NoDefault,
        ScopeRefusal::NotShared(path.clone()),
        ScopeRefusal::OthersScope(path),
    ] {
        assert!(!refusal.hint().is_empty() && !refusal.to_string().is_empty(), "{refusal:?}");
    }
}
