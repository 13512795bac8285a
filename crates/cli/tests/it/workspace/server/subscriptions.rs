//! Subscriptions: the client's stream reports changes to a file, including changes from outside the session.

use serde_json::{Value, json};
use testkit::{EventStream, Project, wait_until};

use super::Desk;
use super::lifecycles::kill_servers;

async fn desk() -> (Desk, EventStream) {
    let project = Project::new("subscribe");
    project.write("watched.txt", "one\n");
    project.write("dir/other.txt", "one\n");
    let desk = Desk::open(project).await;
    let events = desk.client.get_stream(None).await.into_events();
    (desk, events)
}

async fn ask(desk: &Desk, method: &str, name: &str) -> Value {
    desk.client.request(method, Some(json!({"uri": desk.project.uri(name)}))).await
}

/// Waits for a notification about a file, skipping repeated ones about earlier files.
async fn news_of(events: &mut EventStream, desk: &Desk, name: &str) {
    let uri = desk.project.uri(name);
    loop {
        let message = events.next_message().await.expect("the stream stays open");
        assert_eq!(message["method"], "notifications/resources/updated", "{message}");
        if message["params"]["uri"] == uri {
            return;
        }
    }
}

/// Returns all notifications up to now. It subscribes to a new file and changes it: when the notification of that
/// change arrives, all earlier ones have arrived.
async fn all_until_now(events: &mut EventStream, desk: &Desk, sentinel: &str) -> Vec<Value> {
    desk.project.write(sentinel, "");
    assert_eq!(ask(desk, "resources/subscribe", sentinel).await["result"], json!({}));
    desk.project.write(sentinel, "changed");
    let (mut heard, uri) = (Vec::new(), desk.project.uri(sentinel));
    loop {
        let message = events.next_message().await.expect("the stream stays open");
        if message["params"]["uri"] == uri {
            return heard;
        }
        heard.push(message);
    }
}

#[tokio::test]
async fn a_change_by_a_tool_by_a_command_and_from_outside_is_told() {
    let (desk, mut events) = desk().await;
    assert_eq!(ask(&desk, "resources/subscribe", "watched.txt").await["result"], json!({}));
    desk.ok("write_file", json!({"path": "watched.txt", "content": "two\n"})).await;
    news_of(&mut events, &desk, "watched.txt").await;
    all_until_now(&mut events, &desk, "first").await;

    desk.run("echo three >> watched.txt").await;
    news_of(&mut events, &desk, "watched.txt").await;
    all_until_now(&mut events, &desk, "second").await;

    desk.project.write("new.tmp", "four\n");
    std::fs::rename(desk.project.join("new.tmp"), desk.project.join("watched.txt")).unwrap();
    news_of(&mut events, &desk, "watched.txt").await;
    all_until_now(&mut events, &desk, "third").await;

    // After the replacement the file is still watched.
    desk.project.write("watched.txt", "five\n");
    news_of(&mut events, &desk, "watched.txt").await;
}

#[tokio::test]
async fn only_files_that_were_subscribed_to_are_told_of() {
    let (desk, mut events) = desk().await;
    ask(&desk, "resources/subscribe", "watched.txt").await;
    desk.ok("write_file", json!({"path": "dir/other.txt", "content": "two\n"})).await;
    desk.ok("write_file", json!({"path": "beside.txt", "content": "two\n"})).await;
    assert_eq!(all_until_now(&mut events, &desk, "sentinel").await, Vec::<Value>::new());
}

#[tokio::test]
async fn after_unsubscribing_nothing_more_is_told() {
    let (desk, mut events) = desk().await;
    ask(&desk, "resources/subscribe", "watched.txt").await;
    ask(&desk, "resources/subscribe", "dir/other.txt").await;
    desk.ok("write_file", json!({"path": "watched.txt", "content": "two\n"})).await;
    news_of(&mut events, &desk, "watched.txt").await;
    all_until_now(&mut events, &desk, "first").await;
    assert_eq!(ask(&desk, "resources/unsubscribe", "watched.txt").await["result"], json!({}));
    desk.ok("write_file", json!({"path": "watched.txt", "content": "three\n"})).await;
    let heard = all_until_now(&mut events, &desk, "second").await;
    let uri = desk.project.uri("watched.txt");
    assert!(!heard.iter().any(|message| message["params"]["uri"] == uri), "{heard:?}");
    desk.ok("write_file", json!({"path": "dir/other.txt", "content": "two\n"})).await;
    news_of(&mut events, &desk, "dir/other.txt").await;
}

#[tokio::test]
async fn a_deletion_and_a_return_are_told() {
    let (desk, mut events) = desk().await;
    ask(&desk, "resources/subscribe", "watched.txt").await;
    desk.ok("delete_file", json!({"path": "watched.txt"})).await;
    news_of(&mut events, &desk, "watched.txt").await;
    all_until_now(&mut events, &desk, "sentinel").await;
    desk.project.write("watched.txt", "back\n");
    news_of(&mut events, &desk, "watched.txt").await;
}

#[tokio::test]
async fn what_cannot_be_read_cannot_be_subscribed_to() {
    let (desk, _events) = desk().await;
    let answer = ask(&desk, "resources/subscribe", "missing.txt").await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    let outside = Project::new("outside");
    outside.write("a.txt", "x");
    let params = json!({"uri": outside.uri("a.txt")});
    let answer = desk.client.request("resources/subscribe", Some(params)).await;
    assert_eq!(answer["error"]["data"]["code"], "outside_workspace", "{answer}");
    assert_eq!(ask(&desk, "resources/subscribe", "watched.txt").await["result"], json!({}));
}

#[tokio::test]
async fn a_subscription_outlives_the_server() {
    let (desk, mut events) = desk().await;
    ask(&desk, "resources/subscribe", "watched.txt").await;
    kill_servers(&desk.gateway).await;
    wait_until("the session answers again", async || {
        desk.client.call_tool("list_dir", json!({})).await["result"].is_object()
    })
    .await;
    desk.project.write("watched.txt", "after the restart\n");
    news_of(&mut events, &desk, "watched.txt").await;
}
