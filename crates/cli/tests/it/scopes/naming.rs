//! Workspaces named by a header or by the URL, and the operator's limits on them.

use std::path::Path;

use serde_json::json;
use testkit::{Gateway, NEWEST, RawClient, Reply, roots, text_of};

use super::{
    add_directory, assert_kept_out_of, assert_refused_with_403, assert_scope_refused, assert_works_in, open,
    project_with_secret, window, with_roots, working_directory,
};

const HEADER: &str = "ringfence-workspace";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A client whose URL names a workspace.
fn client_at(gateway: &Gateway, workspace: &str) -> RawClient {
    RawClient::new(format!("{}/w/{workspace}", gateway.url()))
}

/// Sends `initialize` as a client with roots.
async fn post_initialize(client: &RawClient) -> Reply {
    client.post_initialize(&json!(1), with_roots(), NEWEST).await
}

fn assert_bad_request(reply: &Reply) {
    assert_eq!(reply.status, 400, "{:?}", reply.body);
    assert_eq!(reply.json()["id"], 1);
    assert!(reply.json()["error"]["message"].is_string(), "{}", reply.json());
    assert_eq!(reply.session_id(), None);
}

/// Opens a session whose scope was named, and asserts that the client is not asked for its roots.
async fn assert_opens(mut client: RawClient, directory: &Path) -> RawClient {
    client.open(with_roots(), NEWEST).await;
    let answer = client.call_tool_answering("working_directory", json!({}), |question| {
        panic!("the client was asked: {question}")
    });
    assert_eq!(text_of(&answer.await.response), text(directory));
    assert_works_in(&client, directory).await;
    client
}

#[tokio::test]
async fn a_header_names_a_workspace_of_the_operator_or_a_directory() {
    let (docs, other) = (project_with_secret("docs"), project_with_secret("other"));
    let gateway =
        Gateway::builder().flag("--workspace").flag(format!("docs={}", text(&docs.path))).start().await;
    let client = assert_opens(gateway.client().with_header(HEADER, "docs"), &docs.path).await;
    assert_kept_out_of(&client, &other.path).await;
    let client = assert_opens(gateway.client().with_header(HEADER, text(&other.path)), &other.path).await;
    assert_kept_out_of(&client, &docs.path).await;
}

#[tokio::test]
async fn the_url_names_a_workspace_of_the_operator() {
    let (docs, code) = (project_with_secret("docs"), project_with_secret("code"));
    let gateway = Gateway::builder()
        .flags(["--workspace", &format!("docs={}", text(&docs.path))])
        .flags(["--workspace", &format!("code.v2={}", text(&code.path))])
        .start()
        .await;
    let at_docs = assert_opens(client_at(&gateway, "docs"), &docs.path).await;
    let at_code = assert_opens(client_at(&gateway, "code.v2"), &code.path).await;
    assert_kept_out_of(&at_docs, &code.path).await;
    assert_kept_out_of(&at_code, &docs.path).await;
    assert_opens(client_at(&gateway, "docs").with_header(HEADER, "docs"), &docs.path).await;
    // GET and DELETE use the same URL.
    at_docs.get_stream(None).await.into_events();
    assert_eq!(at_docs.delete().await.status, 204);
    assert_eq!(at_docs.post_request(&json!(1), "ping", None).await.status, 404);
}

#[tokio::test]
async fn a_named_workspace_beats_roots_which_nobody_asks_for() {
    let (named, rooted) = (project_with_secret("named"), project_with_secret("rooted"));
    let gateway = Gateway::builder().start().await;
    let mut client = gateway.client().with_header(HEADER, text(&named.path));
    client.open(with_roots(), NEWEST).await;
    let get = client.get_stream(None).await.into_events();
    for id in 0..5 {
        client.respond(&json!(id), roots(&[&rooted.path])).await;
    }
    let heard = client.call_tool_for_text("ask", json!({"kind": "roots"})).await;
    assert!(heard.contains(text(&named.path)) && !heard.contains(text(&rooted.path)), "{heard}");
    assert_works_in(&client, &named.path).await;
    assert_kept_out_of(&client, &rooted.path).await;
    drop(get);
    // The control: without the header the same client works in its root.
    assert_works_in(&window(&gateway, &rooted.path).await, &rooted.path).await;
}

#[tokio::test]
async fn names_that_name_nothing_are_bad_requests() {
    let project = project_with_secret("docs");
    let gateway = Gateway::builder()
        .current_dir(&project.path)
        .flags(["--workspace", &format!("docs={}", text(&project.path))])
        .start()
        .await;
    let dotted =
        format!("{}/../{}", text(&project.path), project.path.file_name().unwrap().to_str().unwrap());
    for bad in [
        "unknown",
        "Docs",
        "docs/",
        "docs/sub",
        "./docs",
        "../docs",
        "~",
        ".",
        "${workspaceFolder}",
        "${workspaceFolder}/docs",
        "/srv/${workspaceFolder}",
        "${CLAUDE_PROJECT_DIR:-/}",
        &dotted,
        "docs, docs",
    ] {
        let reply = post_initialize(&gateway.client().with_header(HEADER, bad)).await;
        assert_bad_request(&reply);
    }
    for bad in ["unknown", "Docs", "$%7BworkspaceFolder%7D", "..%2Fdocs", "%2Fetc"] {
        assert_bad_request(&post_initialize(&client_at(&gateway, bad)).await);
    }
    let twice = gateway.client().post_initialize(&json!(1), with_roots(), NEWEST);
    let twice = twice.additional_header(HEADER, "docs").additional_header(HEADER, "docs").await;
    assert_bad_request(&twice);
    assert_eq!(gateway.open_sessions().await, 0);
    assert_opens(gateway.client().with_header(HEADER, "docs"), &project.path).await;
}

#[tokio::test]
async fn header_and_url_must_agree() {
    let (docs, code) = (project_with_secret("docs"), project_with_secret("code"));
    let gateway = Gateway::builder()
        .flags(["--workspace", &format!("docs={}", text(&docs.path))])
        .flags(["--workspace", &format!("code={}", text(&code.path))])
        .start()
        .await;
    for header in ["code", text(&docs.path), text(&code.path), "unknown"] {
        assert_bad_request(&post_initialize(&client_at(&gateway, "docs").with_header(HEADER, header)).await);
    }
    assert_opens(client_at(&gateway, "docs").with_header(HEADER, "docs"), &docs.path).await;
}

#[tokio::test]
async fn named_directories_are_looked_at_like_roots() {
    let project = project_with_secret("exists");
    let gateway = Gateway::builder().start().await;
    let home = std::env::var("HOME").unwrap();
    for bad in ["/", "/etc", "/proc/self/root", &home, text(&project.path.join("missing"))] {
        let reply = post_initialize(&gateway.client().with_header(HEADER, bad)).await;
        assert_refused_with_403(&reply, &json!(1));
    }
    assert_opens(gateway.client().with_header(HEADER, text(&project.path)), &project.path).await;
}

#[tokio::test]
async fn only_allowed_directories_can_be_named_or_be_roots() {
    let (allowed, other) = (project_with_secret("allowed"), project_with_secret("other"));
    let (inside, named) = (add_directory(&allowed, "inside"), add_directory(&other, "named"));
    // A directory whose name begins with the allowed one's.
    let neighbour =
        allowed.path.with_file_name(format!("{}x", allowed.path.file_name().unwrap().to_str().unwrap()));
    std::fs::create_dir(&neighbour).unwrap();
    // Links are resolved, whether they lead into the allowed directory or out of it.
    let (into, out_of) = (other.path.join("into"), allowed.path.join("out-of"));
    std::os::unix::fs::symlink(&inside, &into).unwrap();
    std::os::unix::fs::symlink(&other.path, &out_of).unwrap();
    let gateway = Gateway::builder()
        .flag("--allow-scope")
        .flag(&allowed.path)
        .flags(["--workspace", &format!("named={}", text(&named))])
        .start()
        .await;

    for refused in [&other.path, &neighbour, &out_of] {
        let reply = post_initialize(&gateway.client().with_header(HEADER, text(refused))).await;
        assert_refused_with_403(&reply, &json!(1));
        assert!(reply.json()["error"]["data"]["hint"].as_str().unwrap().contains("--allow-scope"));
        let client = open(&gateway).await;
        let exchange = client.request_answering("tools/list", None, |_| Ok(roots(&[refused]))).await;
        assert_scope_refused(&exchange.response);
        let id = json!("later");
        assert_refused_with_403(&client.post_request(&id, "tools/list", None).await, &id);
    }
    for (granted, real) in [(&allowed.path, &allowed.path), (&inside, &inside), (&into, &inside)] {
        let client = assert_opens(gateway.client().with_header(HEADER, text(granted)), real).await;
        assert_kept_out_of(&client, &other.path).await;
        let client = open(&gateway).await;
        let exchange = client.request_answering("tools/list", None, |_| Ok(roots(&[granted]))).await;
        assert!(exchange.response["result"]["tools"].is_array(), "{}", exchange.response);
        assert_eq!(working_directory(&client).await, *real);
        assert_works_in(&client, real).await;
    }
    // A workspace that the operator named is always allowed.
    assert_opens(gateway.client().with_header(HEADER, "named"), &named).await;
    std::fs::remove_dir(&neighbour).unwrap();
}

#[tokio::test]
async fn a_header_on_later_requests_changes_nothing() {
    let (named, other) = (project_with_secret("named"), project_with_secret("other"));
    let gateway = Gateway::builder().start().await;
    let client = window(&gateway, &named.path).await.with_header(HEADER, text(&other.path));
    assert_works_in(&client, &named.path).await;
    assert_kept_out_of(&client, &other.path).await;
    let reply = post_initialize(&client).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (400, &json!(-32600)));
    assert_works_in(&client, &named.path).await;
}

#[tokio::test]
async fn a_gateway_does_not_start_with_names_that_cannot_be_served() {
    let project = project_with_secret("docs");
    let good = format!("docs={}", text(&project.path));
    for bad in [
        vec!["--workspace", "docs"],
        vec!["--workspace", "=/srv"],
        vec!["--workspace", "a/b=/srv"],
        vec!["--workspace", "docs=/no/such/directory"],
        vec!["--workspace", "docs=/"],
        vec!["--workspace", &good, "--workspace", &good],
        vec!["--allow-scope", "/no/such/directory"],
        vec!["--lifecycle", "sometimes"],
        vec!["--lifecycle", "workspace", "--shared"],
    ] {
        let failed = Gateway::builder().flags(&bad).try_start().await;
        assert!(failed.is_err_and(|failed| !failed.stderr.is_empty()), "{bad:?}");
    }
    Gateway::builder().flags(["--workspace", &good]).start().await;
}
