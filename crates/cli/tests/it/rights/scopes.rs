//! Whose directories are whose.

use serde_json::json;
use testkit::{NEWEST, Reply, roots};

use super::{ALICE, BOB, Site, initialize, with_token};

#[track_caller]
fn assert_not_granted(reply: &Reply) {
    assert_eq!(reply.status, 403, "{:?}", reply.body);
    let error = &reply.json()["error"];
    assert_eq!(error["data"]["reason"], "scope_refused", "{error}");
    let hint = error["data"]["hint"].as_str().unwrap();
    assert!(hint.contains("principals: {NAME: {scopes:") && hint.contains("--allow-scope"), "{hint}");
}

#[tokio::test]
async fn a_project_stays_its_owners_when_no_session_is_open_in_it() {
    let site = Site::new("rights-owner");
    let (of_alice, of_bob) = (site.project("alice"), site.project("bob"));
    let principals = json!({"alice": {"scopes": [of_alice]}, "bob": {"scopes": [of_bob]}});
    let gateway = site.gateway(&principals).start().await;
    for _ in 0..2 {
        assert_not_granted(&site.ask(&gateway, BOB, "alice").await);
        let alice = site.open(&gateway, ALICE, "alice").await;
        assert_not_granted(&site.ask(&gateway, BOB, "alice").await);
        site.close(&gateway, &alice).await;
    }
    assert_eq!(site.ask(&gateway, BOB, "bob").await.status, 200, "the control: his own");
    drop(gateway);

    let common = site.gateway(&json!({})).flag("--allow-scope").flag(site.directory.path());
    let gateway = common.start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    site.close(&gateway, &alice).await;
    assert_eq!(
        site.ask(&gateway, BOB, "alice").await.status,
        200,
        "the control: without rights it opens to others"
    );
}

#[tokio::test]
async fn a_newcomer_does_not_keep_an_owner_out() {
    let site = Site::new("rights-newcomer");
    std::fs::create_dir(site.directory.join("shared/inner")).unwrap();
    // Bob may work anywhere in the directory of the test by default, which holds Alice's.
    let principals = json!({
        "alice": {"scopes": [site.project("alice"), site.project("shared/inner")]},
        "default": {"scopes": [site.directory.path()]},
    });
    let gateway = site.gateway(&principals).start().await;
    for project in ["alice", "shared/inner", "shared"] {
        assert_not_granted(&site.ask(&gateway, BOB, project).await);
    }
    let _bob = site.open(&gateway, BOB, "bob").await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    assert_eq!(alice.call_tool_for_text("box_echo", json!({"text": "mine"})).await, "mine");
    drop(gateway);

    let both =
        json!({"alice": {"scopes": [site.project("shared")]}, "bob": {"scopes": [site.directory.path()]}});
    let gateway = site.gateway(&both).start().await;
    let _bob = site.open(&gateway, BOB, "shared").await;
    let _alice = site.open(&gateway, ALICE, "shared").await;
    drop(gateway);

    let common = site.gateway(&json!({})).flag("--allow-scope").flag(site.directory.path());
    let gateway = common.start().await;
    let _bob = site.open(&gateway, BOB, "alice").await;
    let reply = site.ask(&gateway, ALICE, "alice").await;
    assert_eq!(reply.status, 403, "the control: without rights the first comer keeps others out");
}

/// The finding: a token alone was enough for any directory in which no other principal had a session.
#[tokio::test]
async fn a_token_alone_opens_no_directory() {
    let site = Site::new("rights-token-alone");
    let gateway = site.gateway(&json!({})).start().await;
    for token in [ALICE, BOB] {
        assert_not_granted(&site.ask(&gateway, token, "alice").await);
    }
    drop(gateway);
    let gateway = site.gateway(&json!({})).flag("--allow-scope").flag(site.project("alice")).start().await;
    assert_eq!(site.ask(&gateway, BOB, "alice").await.status, 200, "the control: the operator allows it");
}

#[tokio::test]
async fn a_principal_without_scopes_names_no_directory() {
    let site = Site::new("rights-none");
    let docs = format!("docs={}", site.project("shared").display());
    let wiki = format!("wiki={}", site.project("bob").display());
    let principals = json!({"bob": {"workspaces": ["wiki"]}});
    let builder = site.gateway(&principals).flags(["--workspace", &docs, "--workspace", &wiki]);
    let gateway = builder.start().await;
    let absent = site.ask(&gateway, ALICE, "absent").await;
    let present = site.ask(&gateway, ALICE, "alice").await;
    for reply in [&absent, &present, &site.ask(&gateway, BOB, "alice").await] {
        assert_not_granted(reply);
    }
    let without_name =
        |reply: &Reply, name: &str| reply.json()["error"]["message"].to_string().replace(name, "X");
    assert_eq!(
        without_name(&absent, "absent"),
        without_name(&present, "alice"),
        "it does not say what exists"
    );

    let mut rooted = with_token(&gateway, ALICE);
    rooted.open(json!({"roots": {}}), NEWEST).await;
    let project = site.project("alice");
    let exchange = rooted.request_answering("tools/list", None, |_| Ok(roots(&[&project]))).await;
    let message = exchange.response["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("this principal may use") && message.contains("--allow-scope"), "{message}");

    let named = async |token: &str, name: &str| {
        let post = with_token(&gateway, token).post_initialize(&json!(1), json!({}), NEWEST);
        post.path(&format!("/mcp/w/{name}")).await.status.as_u16()
    };
    assert_eq!(
        (named(ALICE, "docs").await, named(ALICE, "wiki").await),
        (200, 403),
        "wiki is listed for Bob"
    );
    assert_eq!((named(BOB, "wiki").await, named(BOB, "docs").await), (200, 403));
    assert_eq!(initialize(&with_token(&gateway, ALICE)).await.status, 200, "the operator's own default");
}
