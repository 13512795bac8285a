//! Servers start only when they are needed.

use serde_json::json;
use testkit::{Gateway, RawClient, wait_until};

use super::{Site, fixture, open, tools, with};

/// The servers that have a process in a session, in the order of the configuration file.
async fn running(site: &Site, gateway: &Gateway) -> Vec<String> {
    let workers = site.workers(gateway).await;
    let with_process = workers.iter().filter(|worker| worker["pid"].is_number());
    with_process.map(|worker| worker["upstream"].as_str().unwrap().to_owned()).collect()
}

async fn echo(client: &RawClient, tool: &str) {
    assert_eq!(client.call_tool_for_text(tool, json!({"text": "e"})).await, "e");
}

#[tokio::test]
async fn a_server_has_a_process_from_its_first_call_on() {
    let site = Site::new("lazy", &json!({"servers": {"other": fixture(&[]), "used": fixture(&[])}}));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let names = tools(&client).await;
    assert!(names.contains(&"other_echo".to_owned()), "{names:?}");
    wait_until("the trials are over", async || gateway.descendants().is_empty()).await;
    assert_eq!(running(&site, &gateway).await, Vec::<String>::new());

    echo(&client, "used_echo").await;
    assert_eq!(running(&site, &gateway).await, ["used"]);
    let with_one = gateway.descendants().len();
    assert!(with_one > 0, "the control");
    echo(&client, "other_echo").await;
    assert_eq!(running(&site, &gateway).await, ["other", "used"]);
    assert!(gateway.descendants().len() > with_one);

    client.delete().await;
    wait_until("nothing is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test]
async fn an_eager_server_starts_with_the_session() {
    let eager = with(fixture(&[]), "start", json!("eager"));
    let site = Site::new("eager", &json!({"servers": {"eager": eager, "lazy": fixture(&[])}}));
    let gateway = site.start().await;
    let _client = open(&gateway).await;
    wait_until("the eager one runs", async || running(&site, &gateway).await == ["eager"]).await;
}

#[tokio::test]
async fn sessions_share_a_process_only_where_the_file_says_so() {
    let shared = with(fixture(&[]), "lifecycle", json!("shared"));
    let call = with(fixture(&[]), "lifecycle", json!("call"));
    let site =
        Site::new("lifecycles", &json!({"servers": {"shared": shared, "own": fixture(&[]), "call": call}}));
    let gateway = site.start_unfenced().await;
    let (first, second) = (open(&gateway).await, open(&gateway).await);
    let pid = async |client: &RawClient, server: &str| {
        client.call_tool_for_text(&format!("{server}_pid"), json!({})).await
    };
    assert_eq!(pid(&first, "shared").await, pid(&second, "shared").await);
    assert_ne!(pid(&first, "own").await, pid(&second, "own").await);
    assert_eq!(pid(&first, "own").await, pid(&first, "own").await);
    assert_ne!(pid(&first, "call").await, pid(&first, "call").await);
}
