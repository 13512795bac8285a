//! Several windows of one or more clients on one gateway, each with its own project.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, Project, RawClient, file_uri, node_binary, parts_dir, roots, text_of};

use super::{
    add_directory, assert_kept_out_of, assert_works_in, initialize, lock, open, project_with_secret,
    roots_question, say_initialized, try_tool, window, with_roots, working_directory,
};

/// Where a client reads the server's requests.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// On the responses to its own requests.
    PostOnly,
    /// On a stream that it opened before it said `initialized`.
    GetFirst,
    /// On a stream that it opened afterwards.
    InitializedFirst,
}

async fn open_window(gateway: &Gateway, directory: &Path, reading: Reading) -> RawClient {
    open_as(gateway.client(), directory, reading).await
}

async fn open_as(mut client: RawClient, directory: &Path, reading: Reading) -> RawClient {
    initialize(&mut client, NEWEST).await;
    let mut events = match reading {
        Reading::PostOnly => {
            say_initialized(&client).await;
            assert_eq!(lock(&client, roots(&[directory])).await, directory.to_string_lossy());
            return client;
        }
        Reading::GetFirst => {
            let events = client.get_stream(None).await.into_events();
            say_initialized(&client).await;
            events
        }
        Reading::InitializedFirst => {
            say_initialized(&client).await;
            client.get_stream(None).await.into_events()
        }
    };
    let question = roots_question(&mut events).await;
    assert_eq!(client.respond(&question, roots(&[directory])).await.status, 202);
    client
}

async fn three_windows_stay_apart(reading: Reading) {
    let gateway = Gateway::builder().start().await;
    let projects = ["foo", "bar", "baz"].map(project_with_secret);
    let mut windows = Vec::new();
    for project in &projects {
        windows.push(open_window(&gateway, &project.path, reading).await);
    }
    for (number, client) in windows.iter().enumerate() {
        assert_works_in(client, &projects[number].path).await;
        assert_eq!(working_directory(client).await, projects[number].path);
        for other in projects.iter().filter(|other| other.path != projects[number].path) {
            assert_kept_out_of(client, &other.path).await;
        }
    }
    assert_eq!(gateway.open_sessions().await, 3);
}

#[tokio::test]
async fn three_windows_stay_apart_when_clients_read_answers_only() {
    three_windows_stay_apart(Reading::PostOnly).await;
}

#[tokio::test]
async fn three_windows_stay_apart_when_clients_open_their_stream_before_they_are_initialized() {
    three_windows_stay_apart(Reading::GetFirst).await;
}

#[tokio::test]
async fn three_windows_stay_apart_when_clients_open_their_stream_after_they_are_initialized() {
    three_windows_stay_apart(Reading::InitializedFirst).await;
}

#[tokio::test]
async fn clients_that_open_their_stream_and_call_at_the_same_moment_are_asked_and_served() {
    let gateway = Gateway::builder().start().await;
    for _ in 0..10 {
        let project = project_with_secret("at-once");
        let client = open(&gateway).await;
        let (get, post) = tokio::join!(
            client.get_stream(None),
            client.post_tool_call(&json!(7), "working_directory", json!({}))
        );
        let (mut get, mut post) = (get.into_events(), post.into_events());
        let question = tokio::select! {
            question = roots_question(&mut get) => question,
            question = roots_question(&mut post) => question,
        };
        client.respond(&question, roots(&[&project.path])).await;
        let answer = loop {
            let message = post.next_message().await.unwrap();
            if message["id"] == 7 && message.get("method").is_none() {
                break message;
            }
        };
        assert_eq!(text_of(&answer), project.path.to_string_lossy());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_windows_that_open_at_once_each_get_their_own_project() {
    const WINDOWS: usize = 24;
    let gateway = Gateway::builder().start().await;
    let projects: Vec<Project> = (0..WINDOWS).map(|_| project_with_secret("at-once")).collect();
    let opened = projects.iter().enumerate().map(|(number, project)| {
        let reading = [Reading::PostOnly, Reading::GetFirst, Reading::InitializedFirst][number % 3];
        let (client, path) = (gateway.client(), project.path.clone());
        tokio::spawn(async move { open_as(client, &path, reading).await })
    });
    let opened: Vec<_> = opened.collect();
    for (number, client) in opened.into_iter().enumerate() {
        let client = client.await.unwrap();
        assert_eq!(working_directory(&client).await, projects[number].path);
        assert_works_in(&client, &projects[number].path).await;
        assert_kept_out_of(&client, &projects[(number + 1) % WINDOWS].path).await;
    }
}

#[tokio::test]
async fn a_window_on_a_part_of_a_project_has_that_part_only() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("whole");
    let part = add_directory(&project, "part");
    let (on_whole, on_part) = (window(&gateway, &project.path).await, window(&gateway, &part).await);
    assert_works_in(&on_whole, &project.path).await;
    assert_works_in(&on_whole, &part).await;
    assert_works_in(&on_part, &part).await;
    assert_kept_out_of(&on_part, &project.path).await;
}

#[tokio::test]
async fn projects_with_the_same_name_in_different_places_are_two() {
    let gateway = Gateway::builder().start().await;
    let parents = [project_with_secret("parent"), project_with_secret("parent")];
    let same_name = [add_directory(&parents[0], "app"), add_directory(&parents[1], "app")];
    let first = window(&gateway, &same_name[0]).await;
    let second = window(&gateway, &same_name[1]).await;
    for (client, own, other) in
        [(&first, &same_name[0], &same_name[1]), (&second, &same_name[1], &same_name[0])]
    {
        assert_works_in(client, own).await;
        assert_kept_out_of(client, other).await;
        assert_kept_out_of(client, own.parent().unwrap()).await;
    }
}

#[tokio::test]
async fn two_windows_on_one_directory_both_work_in_it_with_processes_of_their_own() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("same");
    let first = window(&gateway, &project.path).await;
    let second = window(&gateway, &project.path).await;
    assert_works_in(&first, &project.path).await;
    assert_works_in(&second, &project.path).await;
    first.call_tool_for_text("state_set", json!({"key": "k", "value": "v"})).await;
    assert_eq!(second.call_tool_for_text("state_get", json!({"key": "k"})).await, "");
    assert_eq!(first.call_tool_for_text("state_get", json!({"key": "k"})).await, "v");
}

#[tokio::test]
async fn roots_decide_and_never_the_directory_that_the_gateway_was_started_in() {
    let (own, started_in) = (project_with_secret("own"), project_with_secret("started-in"));
    let gateway = Gateway::builder().current_dir(&started_in.path).start().await;
    let client = window(&gateway, &own.path).await;
    assert_works_in(&client, &own.path).await;
    assert_kept_out_of(&client, &started_in.path).await;

    // The control: a client without roots works in that directory.
    let client = gateway.open().await;
    assert_works_in(&client, &started_in.path).await;
    assert_kept_out_of(&client, &own.path).await;
}

#[tokio::test]
async fn a_server_that_asks_for_roots_hears_the_locked_scope_and_nothing_that_a_client_volunteers() {
    let gateway = Gateway::builder().start().await;
    let (project, other) = (project_with_secret("a name"), project_with_secret("volunteered"));
    let client = open(&gateway).await;
    let spelled = file_uri_with_spaces(&project.path);
    lock(&client, json!({"roots": [{"uri": spelled, "name": "the client's name for it"}]})).await;
    for _ in 0..3 {
        // Some of these ids belonged to earlier requests, others were never used.
        for id in (0..20).map(Value::from).chain([json!("1"), json!("roots")]) {
            assert_eq!(client.respond(&id, roots(&[&other.path])).await.status, 202);
        }
        let exchange =
            client.call_tool_answering("ask", json!({"kind": "roots"}), |_| Ok(roots(&[&other.path]))).await;
        assert_eq!(exchange.server_requests, Vec::<Value>::new(), "the client is not asked again");
        let heard: Value = serde_json::from_str(&text_of(&exchange.response)).unwrap();
        let name = project.path.file_name().unwrap().to_string_lossy();
        assert_eq!(heard, json!({"roots": [{"uri": spelled, "name": name}]}));
    }
    assert_works_in(&client, &project.path).await;
    assert_kept_out_of(&client, &other.path).await;
}

fn file_uri_with_spaces(path: &Path) -> String {
    file_uri(path).replace(' ', "%20")
}

#[tokio::test]
async fn a_file_server_that_was_told_the_whole_disk_writes_only_in_the_project_of_each_window() {
    let script = parts_dir().join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let gateway = Gateway::builder()
        .command([node_binary().as_os_str(), script.as_os_str(), "/".as_ref()])
        .start()
        .await;
    let projects = ["foo", "bar", "baz"].map(project_with_secret);
    let mut windows = Vec::new();
    for project in &projects {
        let mut client = gateway.client();
        client.open(with_roots(), NEWEST).await;
        let answer =
            client.request_answering("tools/list", None, |_| Ok(roots(&[&project.path]))).await.response;
        assert!(answer["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{answer}");
        windows.push(client);
    }
    for (number, client) in windows.iter().enumerate() {
        for id in 0..20 {
            client.respond(&json!(id), json!({"roots": [{"uri": "file:///"}]})).await;
        }
        let write = async |directory: &Path| {
            let arguments = json!({"path": directory.join("written"), "content": "text"});
            try_tool(client, "write_file", arguments).await
        };
        for (owner, project) in projects.iter().enumerate() {
            let outcome = write(&project.path).await;
            assert_eq!(outcome.is_ok(), owner == number, "{outcome:?}");
            assert_eq!(project.path.join("written").exists(), owner <= number);
        }
        let outcome = write(&std::env::temp_dir()).await;
        assert!(outcome.is_err(), "{outcome:?}");
        let allowed = client.call_tool_for_text("list_allowed_directories", json!({})).await;
        let own = projects[number].path.to_string_lossy().into_owned();
        assert_eq!(allowed.lines().last(), Some(&*own), "{allowed}");
    }
}

#[tokio::test]
async fn a_word_of_the_command_that_happens_to_name_a_file_opens_no_directory_to_anybody() {
    let (project, started_in) = (project_with_secret("own"), project_with_secret("started-in"));
    // `notes` is only the value of an option of a native program, which does not open it.
    std::fs::write(started_in.path.join("notes"), "").unwrap();
    let gateway =
        Gateway::builder().current_dir(&started_in.path).fixture_flags(["--stderr", "notes"]).start().await;
    let client = window(&gateway, &project.path).await;
    assert_works_in(&client, &project.path).await;
    assert_kept_out_of(&client, &started_in.path).await;
}
