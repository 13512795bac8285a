//! `session_info`, and the `session` argument of the tools that take it.

use serde_json::{Value, json};
use testkit::{Gateway, Project, file_uri};

use super::{Desk, Session, TOOLS};

#[tokio::test]
async fn a_session_is_told_where_it_works_and_what_confines_it() {
    let desk = Desk::empty().await;
    let info = desk.ok("session_info", json!({})).await;
    assert_eq!(info.data["workspace"], json!([desk.project.path]));
    assert_eq!(info.data["workspace_uris"], json!([file_uri(&desk.project.path)]));
    assert_eq!(info.data["read_only"], false);
    assert_eq!(info.data["tools"], json!(TOOLS));
    let summary = info.data["confinement"]["summary"].as_str().unwrap();
    // The server is told what was tried around it, and not only what was planned.
    assert!(
        summary.contains("protections enforced") && summary.contains("tree_kill configured"),
        "{summary}"
    );
    assert!(!summary.contains("fs_write_scope") && !summary.contains("scope_metadata"), "{summary}");
    assert_eq!(info.data["limits"]["running_operations"], 8);
    assert!(info.data["shell"].as_str().is_some_and(|shell| shell.ends_with("sh")), "{}", info.data);
    let handle = info.data["session"].as_str().unwrap();
    assert!(handle.starts_with("s-") && info.text.contains(handle), "{}", info.text);
    assert!(desk.gateway.log().contains(handle), "the handle is that of the logs");
    let id = desk.client.session_id().unwrap();
    assert!(!info.result.to_string().contains(id), "the id is a credential");
}

#[tokio::test]
async fn the_client_window_is_named() {
    let project = Project::new("window");
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let client = gateway.client().with_header("ringfence-instance", "window-7");
    let session = Session::open_as(client).await;
    assert_eq!(session.ok("session_info", json!({})).await.data["instance"], "window-7");
}

#[tokio::test]
async fn an_unfenced_session_says_so() {
    let desk = Desk::with_flags(Project::new("unfenced"), &["--unfenced"]).await;
    let info = desk.ok("session_info", json!({})).await;
    assert!(info.data.get("confinement").is_none(), "{}", info.data);
    assert!(info.text.contains("fence: none"), "{}", info.text);
}

/// The arguments of a call that names its session under `spelling`.
fn with_session(tool: &str, spelling: &str, session: &str) -> Value {
    let mut arguments = match tool {
        "await_operation" | "cancel_operation" => json!({"operation_id": "op-1"}),
        _ => json!({}),
    };
    arguments[spelling] = session.into();
    arguments
}

const SESSION_TOOLS: [&str; 5] =
    ["session_info", "session_diff", "operation_status", "await_operation", "cancel_operation"];

#[tokio::test]
async fn a_session_is_named_by_its_handle_or_its_id_and_no_other_is_accepted() {
    let project = Project::new("named");
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let (own, other) = (Session::open(&gateway).await, Session::open(&gateway).await);
    own.run("true").await;
    other.run("true").await;
    let (handle, id) = (own.handle().await, own.client.session_id().unwrap().to_owned());
    for tool in SESSION_TOOLS {
        for (spelling, named) in [("session", &handle), ("sessionId", &id), ("session_id", &id)] {
            own.ok(tool, with_session(tool, spelling, named)).await;
        }
        let theirs = [other.handle().await, other.client.session_id().unwrap().to_owned()];
        for wrong in theirs.iter().map(String::as_str).chain(["s-00000000", "", "nonsense"]) {
            let refused = own.refused(tool, with_session(tool, "session", wrong), "wrong_session").await;
            assert!(refused.data["hint"].as_str().unwrap().contains("leave `session` out"));
        }
    }
}

#[tokio::test]
async fn operations_of_one_session_are_not_those_of_another() {
    let project = Project::new("operations");
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let (own, other) = (Session::open(&gateway).await, Session::open(&gateway).await);
    own.run("echo mine").await;
    for tool in ["operation_status", "await_operation", "cancel_operation"] {
        other.refused(tool, json!({"operation_id": "op-1"}), "unknown_operation").await;
        own.ok(tool, json!({"operation_id": "op-1"})).await;
    }
    assert_eq!(other.ok("operation_status", json!({})).await.data["operations"], json!([]));
}
