//! A session finds its copy again: after its server was stopped, and after its gateway was.

use staging::Method;
use testkit::wait_until;

use super::{Site, open_copy, open_in, shell};

#[tokio::test]
async fn a_staged_session_goes_on_in_its_copy_after_its_gateway_was_killed() {
    let site = Site::new("killed");
    let sessions = testkit::workspace_dir("sessions");
    let start = |port: u16| {
        let state = sessions.join("state");
        site.serve().flag("--stage").port(port).flag("--state-dir").flag(state)
    };
    let mut gateway = start(0).start().await;
    let client = open_in(&gateway, site.path()).await;
    shell(&client, "echo work > work.txt").await;
    let port = gateway.port();
    gateway.kill().await;
    let _gateway = start(port).start().await;
    assert!(shell(&client, "cat work.txt kept.txt").await.starts_with("work\nfrom the project\n"));
    assert_eq!(site.copies().len(), 1);
    assert!(!site.project.has("work.txt"));
}

#[tokio::test]
async fn a_copy_keeps_its_work_between_gateways_and_one_has_it_at_a_time() {
    let site = Site::new("between");
    site.copy("task", Method::Overlay);
    let mut first = site.serve().start().await;
    shell(&open_copy(&first, "task").await, "echo work > work.txt").await;
    let second = site.serve().start().await;
    let mut refused = testkit::RawClient::new(format!("{}/w/task", second.url()));
    let reply = refused.post_initialize(&serde_json::json!(1), serde_json::json!({}), testkit::NEWEST).await;
    assert_eq!(reply.status, 403, "{}", reply.json());
    assert!(reply.json().to_string().contains(&first.pid().to_string()), "{}", reply.json());
    first.terminate().await;
    refused.open(serde_json::json!({}), testkit::NEWEST).await;
    assert!(shell(&refused, "cat work.txt").await.starts_with("work"));
}

#[tokio::test]
async fn nothing_of_a_copy_stays_mounted_or_runs_when_its_sessions_have_ended() {
    let site = Site::new("gone");
    site.copy("task", Method::Overlay);
    let gateway = site.serve().start().await;
    let idle = gateway.descendants().len();
    let client = open_copy(&gateway, "task").await;
    shell(&client, "echo work > work.txt").await;
    assert!(gateway.descendants().len() > idle, "the control");
    assert_eq!(client.delete().await.status, 204);
    wait_until("the processes are gone", async || gateway.descendants().len() <= idle.max(1)).await;
    wait_until("the copy is free", async || site.copies()[0].user().is_none()).await;
}
