//! A gateway whose program is replaced while clients use it: none notices more than a slow call.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use testkit::{Gateway, MessageLog, RawClient, open_descriptors, text_of, wait_until};
use tokio::task::JoinSet;

use super::{Site, open_in, upgrade, upgraded, works_in};

const ROUNDS: usize = 20;

/// Clients that call without a pause.
const CLIENTS: usize = 3;

#[tokio::test]
async fn load_of_twenty_upgrades_fails_no_call_and_repeats_none() {
    let mut site = Site::new("upgrades");
    let log = MessageLog::new(site.project.join("messages"));
    let builder = Gateway::builder().fixture_flags(["--message-log", "messages"]);
    let gateway = site.start(builder.flag("--drain-timeout").flag("0.5")).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = gateway.open().await;
        clients.spawn(call_until(client, number, Arc::clone(&is_over)));
    }
    for _ in 0..ROUNDS {
        let before = log.with_method("tools/call").len();
        wait_until("clients call", async || log.with_method("tools/call").len() > before + CLIENTS).await;
        upgraded(&gateway).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let answered: Vec<String> = clients.join_all().await.into_iter().flatten().collect();
    let mut received: HashMap<String, usize> = HashMap::new();
    for message in log.with_method("tools/call") {
        let nonce = message["params"]["arguments"]["text"].as_str().unwrap().to_owned();
        *received.entry(nonce).or_default() += 1;
    }
    assert!(received.values().all(|times| *times == 1), "a call was sent twice");
    assert!(answered.len() > ROUNDS * CLIENTS, "{}", answered.len());
    assert_eq!(received.len(), answered.len(), "each call was answered");
    assert_eq!(gateway.counter("sessions_restored").await, u64::try_from(CLIENTS).unwrap());
}

/// Calls with a connection of its own for each call. Returns what was answered, which is everything.
async fn call_until(client: RawClient, number: usize, is_over: Arc<AtomicBool>) -> Vec<String> {
    let mut answered = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let nonce = format!("{number} {}", answered.len());
        let id = json!(nonce);
        let reply = client.post_tool_call(&id, "echo", json!({"text": nonce})).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        let answer = client.finish_exchange(&id, reply, |question| panic!("{question}")).await.response;
        assert_eq!(text_of(&answer), nonce);
        answered.push(nonce);
    }
    answered
}

#[tokio::test]
async fn the_process_stays_and_the_program_is_the_new_file() {
    let mut site = Site::new("replaced");
    let program = site.install();
    let gateway = site.start(Gateway::builder().binary(&program)).await;
    let client = open_in(&gateway, &site.project.path).await;
    let runs = || std::fs::metadata(format!("/proc/{}/exe", gateway.pid())).unwrap().ino();
    let first = runs();
    site.install();
    assert_eq!(runs(), first, "the control: a program is not replaced by a file");
    upgraded(&gateway).await;
    assert_eq!(runs(), program.metadata().unwrap().ino());
    assert_ne!(runs(), first);
    let back = works_in(&client).await;
    assert_eq!(text_of(&back), site.project.path.to_string_lossy());
    assert_eq!(back["result"]["_meta"]["io.ringfence/restored"]["epoch"], 1);
}

#[tokio::test]
async fn a_link_to_another_version_is_followed() {
    let mut site = Site::new("linked");
    let program = site.install();
    let link = site.state.join("bin/current");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let gateway = site.start(Gateway::builder().binary(&link)).await;
    let other = site.state.join("bin/other");
    std::fs::copy(&program, &other).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    upgraded(&gateway).await;
    assert_eq!(
        std::fs::read_link(format!("/proc/{}/exe", gateway.pid())).unwrap(),
        other.canonicalize().unwrap()
    );
}

#[tokio::test]
async fn many_upgrades_leave_no_descriptor_and_no_process() {
    let mut site = Site::new("leftovers");
    let gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let (mut figures, mut zombies) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        upgraded(&gateway).await;
        works_in(&client).await;
        if round == 0 || round == ROUNDS - 1 {
            wait_until("nothing but one worker runs", async || gateway.descendants().len() == 2).await;
            figures.push(open_descriptors(gateway.pid()));
        }
        zombies += gateway.descendants().iter().filter(|pid| is_zombie(**pid)).count();
    }
    assert_eq!(zombies, 0);
    let [first, last] = figures[..] else { panic!("{figures:?}") };
    assert!(last <= first + 1, "{figures:?}: one more may be open for a moment");
    assert_eq!(gateway.listening_event()["pid"], gateway.pid());
    let text = client.call_tool_for_text("environment", json!({})).await;
    assert!(text.contains("RINGFENCE_SCOPE") && !text.contains("LISTEN_"), "{text}");
}

fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn an_upgrade_waits_for_a_call_that_ends_in_time() {
    let mut site = Site::new("waits");
    let gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let id = json!("long");
    let reply = client.post_tool_call(&id, "sleep", json!({"ms": 2000})).await;
    assert!(reply.body.is_sse(), "it is running");
    let upgrading = upgraded(&gateway);
    let answered = client.finish_exchange(&id, reply, |question| panic!("{question}"));
    let ((), answered) = tokio::join!(upgrading, answered);
    assert!(answered.response["result"].is_object(), "{}", answered.response);
    let lost = &works_in(&client).await["result"]["_meta"]["io.ringfence/restored"]["lost"];
    assert_eq!(lost, &json!([]));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cut_and_named() {
    let mut site = Site::new("cut");
    let builder = Gateway::builder().flags(["--drain-timeout", "0.2", "--drain", "0.1"]);
    let gateway = site.start(builder).await;
    let client = open_in(&gateway, &site.project.path).await;
    let id = json!("too long");
    let reply = client.post_tool_call(&id, "sleep", json!({"ms": 3_600_000})).await;
    let cut = client.finish_exchange(&id, reply, |question| panic!("{question}"));
    let ((), cut) = tokio::join!(upgraded(&gateway), cut);
    let error = &cut.response["error"];
    assert!(error["message"].as_str().unwrap().contains("was upgraded"), "{error}");
    assert_eq!(
        error["data"],
        json!({"reason": "gateway_restarted", "outcome": "unknown"}),
        "{}",
        cut.response
    );
    let back = works_in(&client).await;
    assert_eq!(text_of(&back), site.project.path.to_string_lossy());
}

#[tokio::test]
async fn a_gateway_that_is_ended_while_it_waits_ends() {
    let mut site = Site::new("ended-first");
    let mut gateway = site.start(Gateway::builder().flags(["--drain", "0.1"])).await;
    let client = open_in(&gateway, &site.project.path).await;
    let reply = client.post_tool_call(&json!(1), "sleep", json!({"ms": 3_600_000})).await;
    let upgrading = tokio::spawn({
        let pid = gateway.pid().to_string();
        async move {
            let mut command = tokio::process::Command::new(testkit::ringfence_binary());
            command.args(["upgrade", &pid]).kill_on_drop(true).output().await.unwrap()
        }
    });
    gateway.wait_for_log("upgrading at the next quiet moment").await;
    assert!(gateway.terminate().await.success(), "{}", gateway.log());
    assert_eq!(gateway.stdout().text().lines().count(), 1, "no other program has begun");
    let output = upgrading.await.unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    drop(reply);
}

#[tokio::test]
async fn a_signal_asks_for_an_upgrade_too() {
    let mut site = Site::new("signal");
    let gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(gateway.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::USR2).unwrap();
    wait_until("the new program has announced itself", async || gateway.stdout().text().lines().count() == 2)
        .await;
    assert_eq!(text_of(&works_in(&client).await), site.project.path.to_string_lossy());
    assert_eq!(gateway.counter("sessions_restored").await, 1);
}

#[tokio::test]
async fn a_gateway_that_keeps_nothing_is_upgraded_only_by_force() {
    let gateway = Gateway::builder().start().await;
    let client = gateway.open().await;
    let (outcome, is_success) = upgrade(&gateway, &[]).await;
    let reason = outcome["reason"].as_str().unwrap();
    assert!(!is_success && reason.contains("keeps no sessions") && reason.contains("hint: "), "{outcome}");
    client.call_tool_for_text("echo", json!({"text": "still there"})).await;
    let (outcome, is_success) = upgrade(&gateway, &["--force"]).await;
    assert!(is_success, "{outcome}");
    assert_eq!(client.post_tool_call(&json!(1), "echo", json!({})).await.status, 404);
    gateway.open().await;
}
