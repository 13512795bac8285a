//! The power fails: of what was written without an fsync, the disk keeps all, nothing, or some sectors. What a client
//! was told must hold all the same. And what calls cost the disk.

use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use identity::SessionId;
use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, ringfence_binary, roots};
use tokio::process::Command;

use super::Site;
use super::disk_record::{Dice, Disk, Recording, Step};

/// How often the power fails, at moments that a seed chooses.
const CUTS: u64 = 120;
/// So many of them are tried with a gateway; all of them with `ringfence sessions prune`, which opens the same store.
const WITH_GATEWAY: u64 = 12;

/// Clients at a time, so that they share fsyncs, and how often.
const CLIENTS: usize = 6;
const ROUNDS: usize = 12;

/// Makes records large, so that the log is moved into the database meanwhile.
const BALLAST: usize = 60_000;

/// When a client was told what of its session, in seconds since 1970.
#[derive(Debug, Default)]
struct Told {
    opened: Option<f64>,
    locked: Option<f64>,
    /// From when on it may be gone, and from when on it must be.
    deleting: Option<f64>,
    deleted: Option<f64>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Opens a session, locks its scope, uses it, and perhaps deletes it.
async fn live(mut client: RawClient, directory: &Path, is_deleted: bool) -> (String, Told) {
    let mut told = Told::default();
    let ballast = json!({"roots": {}, "experimental": {"ballast": {"x": "x".repeat(BALLAST)}}});
    client.open(ballast, NEWEST).await;
    told.opened = Some(now());
    let asked = client.call_tool_answering("working_directory", json!({}), |_| Ok(roots(&[directory]))).await;
    assert!(asked.response["result"].is_object(), "{:?}", asked.response);
    told.locked = Some(now());
    client.call_tool("sleep", json!({"ms": 150})).await;
    if is_deleted {
        told.deleting = Some(now());
        assert_eq!(client.delete().await.status, 204);
        told.deleted = Some(now());
    }
    (client.session_id().unwrap().to_owned(), told)
}

/// What a store holds, as the shipped binary reads it: the scope of each session, by handle.
async fn stored(state: &Path) -> HashMap<String, usize> {
    let mut command = Command::new(ringfence_binary());
    command.args(["sessions", "prune", "--all-stored", "--dry-run", "--json", "--state-dir"]).arg(state);
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sessions = found["pruned"].as_array().unwrap().iter();
    sessions
        .map(|session| {
            let handle = session["session"].as_str().unwrap().to_owned();
            (handle, session["scope"].as_array().unwrap().len())
        })
        .collect()
}

fn has_damaged(state: &Path) -> bool {
    let mut names = std::fs::read_dir(state).unwrap().flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().contains("damaged"))
}

/// The sessions of which a promise is broken when the power fails at this moment.
fn broken<'a>(told: &'a HashMap<String, Told>, at: f64, stored: &HashMap<String, usize>) -> Vec<&'a str> {
    let by_then = |moment: Option<f64>| moment.is_some_and(|moment| moment < at);
    let is_broken = |(id, told): &(&String, &Told)| {
        let handle = SessionId::parse(id).unwrap().handle().to_string();
        match stored.get(&handle) {
            Some(_) if by_then(told.deleted) => true,
            Some(roots) => by_then(told.locked) && *roots == 0,
            None => by_then(told.opened) && !by_then(told.deleting),
        }
    };
    told.iter().filter(is_broken).map(|(id, _)| id.as_str()).collect()
}

#[tokio::test]
async fn load_of_a_hundred_power_failures_loses_nothing_that_a_client_was_told() {
    let mut site = Site::new("power");
    let mut gateway = site.start_fixture().await;
    let state = site.state.join("sessions");
    let before = Disk::of(&state);
    let recording = Recording::begin(&gateway, site.state.join("strace.log")).await;
    let mut told = HashMap::new();
    for round in 0..ROUNDS {
        let lives =
            (0..CLIENTS).map(|number| live(gateway.client(), &site.project.path, (round + number) % 5 == 0));
        told.extend(futures_util::future::join_all(lives).await);
    }
    gateway.kill().await;
    let steps = recording.end().await;
    assert!(steps.iter().filter(|step| step.is_sync()).count() > ROUNDS, "{} steps", steps.len());
    let mut dice = Dice(20_261_119);
    let with_gateway = CUTS / WITH_GATEWAY;
    for cut in 0..CUTS {
        let at = usize::try_from(dice.below(steps.len() as u64)).unwrap();
        let after = site.state.join(format!("cut-{cut}"));
        let mut disk = before.clone();
        steps[..at].iter().for_each(|step| disk.take(step));
        disk.lose_power(&mut dice, &after);
        let moment = steps[at].at;
        let found = stored(&after).await;
        assert!(!has_damaged(&after), "cut {cut} before step {at}: the database is damaged");
        assert_eq!(broken(&told, moment, &found), Vec::<&str>::new(), "cut {cut} before step {at}");
        if cut % with_gateway == 0 {
            go_on(&site, &after, &told, moment).await;
        }
        std::fs::remove_dir_all(&after).unwrap();
    }
    let unsynced = without_syncs(&before, &steps, &mut dice, &site.state.join("control")).await;
    assert!(!broken(&told, now(), &unsynced).is_empty(), "the control: a disk that lies loses sessions");
}

/// The same at the end of all steps, on a disk that keeps nothing back on an fsync. The database may be empty or damaged.
async fn without_syncs(
    before: &Disk,
    steps: &[Step],
    dice: &mut Dice,
    into: &Path,
) -> HashMap<String, usize> {
    let mut disk = before.clone();
    steps.iter().filter(|step| !step.is_sync()).for_each(|step| disk.take(step));
    for round in 0.. {
        let into = into.join(round.to_string());
        disk.lose_power(dice, &into);
        let found = stored(&into).await;
        // Now and then a disk keeps everything by chance.
        if found.is_empty() || has_damaged(&into) || round == 9 {
            return found;
        }
    }
    unreachable!()
}

/// Clients go on with their sessions at a gateway on what is left.
async fn go_on(site: &Site, state: &Path, told: &HashMap<String, Told>, moment: f64) {
    let builder = Gateway::builder().flag("--state-dir").flag(state).current_dir(&site.project.path);
    let gateway = builder.start().await;
    let by_then = |at: Option<f64>| at.is_some_and(|at| at < moment);
    let answer = async |id: &str| {
        let mut client = gateway.client();
        client.set_session(Some(id), Some(NEWEST));
        client.post_tool_call(&json!(1), "working_directory", json!({})).await
    };
    let open = told.iter().find(|(_, told)| by_then(told.locked) && !by_then(told.deleting));
    if let Some((id, _)) = open {
        let reply = answer(id).await;
        assert_eq!(reply.status, 200);
        let text = reply.answer_text().await;
        assert!(text.contains(&*site.project.path.to_string_lossy()), "{text}");
    }
    if let Some((id, _)) = told.iter().find(|(_, told)| by_then(told.deleted)) {
        assert_eq!(answer(id).await.status, 404);
    }
}

/// How often the store was written meanwhile, and how often that waited for the disk. At the end a session is opened,
/// which writes what still waits.
async fn written(
    site: &Site,
    gateway: &Gateway,
    client: &RawClient,
    (tool, arguments, times): (&str, Value, usize),
) -> (usize, usize) {
    let recording = Recording::begin(gateway, site.state.join("strace.log")).await;
    for _ in 0..times {
        assert!(client.call_tool(tool, arguments.clone()).await["result"].is_object());
    }
    let _after = gateway.open().await;
    let steps = recording.end().await;
    let count = |wanted: fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count();
    (count(Step::is_commit), count(Step::is_sync))
}

#[tokio::test]
async fn quick_calls_write_nothing_and_calls_with_a_stream_write_twice_without_an_fsync() {
    const QUICK: usize = 200;
    const STREAMED: usize = 10;
    let mut site = Site::new("writes");
    let gateway = site.start_fixture().await;
    let client = super::open_in(&gateway, &site.project.path).await;
    let (none, its_syncs) = written(&site, &gateway, &client, ("echo", json!({"text": "x"}), 0)).await;
    assert!(none >= 1 && its_syncs >= 1, "the control: opening a session writes and waits for the disk");
    let (quick, syncs) = written(&site, &gateway, &client, ("echo", json!({"text": "x"}), QUICK)).await;
    // That the session was used is noted at most once a minute. On a busy machine a few calls take 100 ms.
    assert!(
        quick < none + QUICK / 10 && syncs <= its_syncs,
        "{quick} writes, {syncs} fsyncs; {none} without"
    );
    let (streamed, syncs) = written(&site, &gateway, &client, ("sleep", json!({"ms": 250}), STREAMED)).await;
    assert!(streamed >= none + STREAMED, "the control: they write, {streamed} times");
    assert!(streamed <= none + 2 * STREAMED + 1 && syncs <= its_syncs, "{streamed} writes, {syncs} fsyncs");
}
