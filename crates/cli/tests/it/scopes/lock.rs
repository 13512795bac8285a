//! A scope is set once, by the answer to the gateway's own request, and only if that answer is valid.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, Reply, file_uri, roots, text_of, wait_until};

use super::{
    add_directory, assert_kept_out_of, assert_refused_with_403, assert_scope_refused, assert_works_in,
    begin_asked_call, initialize, lock, only_message, open, project_with_secret, roots_question,
    say_initialized, window, with_roots, working_directory,
};

/// Posts an answer with this raw text as its result, which may be unusual JSON.
async fn respond_raw(client: &RawClient, id: &Value, result: &str) -> Reply {
    client.post(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_answers_that_race_exactly_one_wins_and_stays() {
    const ROUNDS: usize = 24;
    let gateway = Gateway::builder().start().await;
    let projects = [project_with_secret("one"), project_with_secret("two")];
    for round in 0..ROUNDS {
        let client = open(&gateway).await;
        // Two questions are open: one on a stream that was closed, and one on the stream of the waiting call.
        let mut get = client.get_stream(None).await.into_events();
        let first = roots_question(&mut get).await;
        drop(get);
        let (events, second) = begin_asked_call(&client, &json!("call"), "working_directory").await;
        assert_ne!(first, second);
        let answers = [(first, &projects[0].path), (second, &projects[1].path)];
        let respond = async |(id, path): &(Value, &std::path::PathBuf)| {
            assert_eq!(client.respond(id, roots(&[path])).await.status, 202);
        };
        if round % 2 == 0 {
            tokio::join!(respond(&answers[0]), respond(&answers[1]));
        } else {
            tokio::join!(respond(&answers[1]), respond(&answers[0]));
        }
        let won = text_of(&only_message(events).await);
        let winner =
            projects.iter().position(|project| project.path == Path::new(&won)).expect("one of the two");
        for answer in &answers {
            respond(answer).await;
        }
        assert_eq!(working_directory(&client).await, projects[winner].path);
        assert_works_in(&client, &projects[winner].path).await;
        assert_kept_out_of(&client, &projects[1 - winner].path).await;
        client.delete().await;
    }
}

#[tokio::test]
async fn an_answer_to_what_nobody_asked_locks_nothing() {
    let gateway = Gateway::builder().start().await;
    let (project, volunteered) = (project_with_secret("asked"), project_with_secret("volunteered"));
    let mut client = gateway.client();
    initialize(&mut client, NEWEST).await;
    let volunteer = async |client: &RawClient| {
        for id in ["0", "1", "2", "3", "-1", "999", r#""1""#, r#""2""#, "1.0", "18446744073709551615"] {
            let (id, result) = (serde_json::from_str(id).unwrap(), roots(&[&volunteered.path]).to_string());
            let status = respond_raw(client, &id, &result).await.status;
            assert!(status == 202 || status == 400, "{id}: {status}");
        }
    };
    // A client can guess the id of a request that is not sent yet.
    volunteer(&client).await;
    say_initialized(&client).await;
    volunteer(&client).await;
    let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    for id in [json!(question.to_string()), json!(question.as_u64().unwrap() + 1)] {
        client.respond(&id, roots(&[&volunteered.path])).await;
    }
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
    volunteer(&client).await;
    assert_works_in(&client, &project.path).await;
    assert_kept_out_of(&client, &volunteered.path).await;
}

#[tokio::test]
async fn an_answer_in_an_envelope_that_says_two_things_is_not_taken() {
    let gateway = Gateway::builder().start().await;
    let (project, other) = (project_with_secret("one"), project_with_secret("two"));
    let client = open(&gateway).await;
    let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    let (good, bad) = (roots(&[&project.path]), roots(&[&other.path]));
    for body in [
        format!(r#"{{"jsonrpc":"2.0","id":{question},"result":{bad},"result":{good}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":99,"id":{question},"result":{bad}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":{question},"result":{bad},"error":{{"code":1,"message":"m"}}}}"#),
    ] {
        assert_eq!(client.post(body.clone()).await.status, 400, "{body}");
    }
    client.respond(&question, good).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
}

/// Answers `roots/list` with this text while two calls wait, and returns the answers to both.
async fn answers_after(client: &RawClient, result: &str) -> [Value; 2] {
    let (first, question) = begin_asked_call(client, &json!("first"), "working_directory").await;
    let second = client.post_request(&json!("second"), "tools/list", None).await.into_events();
    assert_eq!(respond_raw(client, &question, result).await.status, 202, "{result}");
    let answers = [only_message(first).await, only_message(second).await];
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!("first"), &json!("second")));
    answers
}

async fn assert_session_is_refused(gateway: &Gateway, result: &str) {
    let mut client = open(gateway).await;
    for answer in answers_after(&client, result).await {
        assert!(answer.get("result").is_none(), "{result}: {answer}");
        assert_scope_refused(&answer);
    }
    for id in [json!("later"), json!("still later")] {
        assert_refused_with_403(&client.post_tool_call(&id, "echo", json!({"text": "x"})).await, &id);
    }
    assert_refused_with_403(&client.get_stream(None).await, &Value::Null);
    // The client can start over, even with the id of the refused session in the header.
    client.open(with_roots(), NEWEST).await;
    client.delete().await;
}

async fn assert_sessions_are_refused(results: impl IntoIterator<Item = String>) {
    let project = project_with_secret("good");
    let gateway = Gateway::builder().start().await;
    for result in results {
        assert_session_is_refused(&gateway, &result).await;
    }
    // The control: the same with a good answer.
    let client = open(&gateway).await;
    let [first, second] = answers_after(&client, &roots(&[&project.path]).to_string()).await;
    assert_eq!(text_of(&first), project.path.to_string_lossy());
    assert!(second["result"]["tools"].is_array(), "{second}");
}

#[tokio::test]
async fn garbage_in_place_of_roots_refuses_the_session() {
    let project = project_with_secret("named");
    let uri = json!(file_uri(&project.path));
    assert_sessions_are_refused([
        "null".into(),
        "[]".into(),
        "7".into(),
        "true".into(),
        uri.to_string(),
        "{}".into(),
        r#"{"roots":null}"#.into(),
        r#"{"roots":{}}"#.into(),
        format!(r#"{{"roots":{uri}}}"#),
        format!(r#"{{"roots":[{uri}]}}"#),
        format!(r#"{{"roots":[[{uri}]]}}"#),
        r#"{"roots":[null]}"#.into(),
        r#"{"roots":[{}]}"#.into(),
        r#"{"roots":[{"uri":7}]}"#.into(),
        r#"{"roots":[{"uri":null}]}"#.into(),
        format!(r#"{{"roots":[{{"uri":[{uri}]}}]}}"#),
        format!(r#"{{"roots":[{{"name":{uri}}}]}}"#),
        format!(r#"{{"Roots":[{{"uri":{uri}}}]}}"#),
    ])
    .await;
}

#[tokio::test]
async fn roots_that_say_two_things_refuse_the_session() {
    let (one, two) = (project_with_secret("one"), project_with_secret("two"));
    let (one, two) = (json!(file_uri(&one.path)), json!(file_uri(&two.path)));
    assert_sessions_are_refused([
        format!(r#"{{"roots":[{{"uri":{one}}}],"roots":[{{"uri":{two}}}]}}"#),
        format!(r#"{{"roots":[],"roots":[{{"uri":{two}}}]}}"#),
        format!(r#"{{"roots":[{{"uri":{one},"uri":{two}}}]}}"#),
        format!(r#"{{"roots":[{{"uri":{one},"uri":{one}}}]}}"#),
        format!(r#"{{"roots":[{{"uri":{one},"\u0075ri":{two}}}]}}"#),
    ])
    .await;
}

fn naming(uri: &str) -> String {
    json!({"roots": [{ "uri": uri }]}).to_string()
}

#[tokio::test]
async fn roots_that_are_no_files_refuse_the_session() {
    let project = project_with_secret("named");
    let path = project.path.to_string_lossy().into_owned();
    let uris = [
        String::new(),
        format!("http://localhost{path}"),
        format!("https://{path}"),
        format!("vscode-remote://ssh-remote+host{path}"),
        format!("file+ssh://{path}"),
        "untitled:Untitled-1".into(),
        "data:,x".into(),
        format!("file://elsewhere{path}"),
        format!("file://user@localhost{path}"),
        format!("file://127.0.0.1{path}"),
        path.trim_start_matches('/').to_owned(),
        "./project".into(),
        "~/project".into(),
        "file://".into(),
        "file://localhost".into(),
        "C:\\project".into(),
        "file:///C:\\project".into(),
        "${workspaceFolder}".into(),
        "file://${workspaceFolder}".into(),
    ];
    assert_sessions_are_refused(uris.map(|uri| naming(&uri))).await;
}

#[tokio::test]
async fn roots_with_tricks_in_their_spelling_refuse_the_session() {
    let project = project_with_secret("tricky");
    add_directory(&project, "sub");
    let path = project.path.to_string_lossy().into_owned();
    let uris = [
        format!("file://{path}/sub/.."),
        format!("file://{path}/./sub"),
        format!("{path}/sub/.."),
        format!("{path}//sub"),
        format!("file://{path}/sub/%2e%2e"),
        format!("file://{path}/sub/%2E%2e/"),
        format!("file://{path}/sub/.%2e"),
        format!("file://{path}%2fsub"),
        format!("file://{path}%2Fsub%2F.."),
        format!("file://{path}/%252e%252e"),
        format!("file://{path}/sub%00"),
        format!("file://{path}/sub%00/../.."),
        format!("{path}/sub\0"),
        format!("file://{path}/sub%"),
        format!("file://{path}/sub%2"),
        format!("file://{path}/sub%zz"),
        format!("file://{path}/sub%+1"),
        format!("file://{path}/sub%5c.."),
        format!("file://{path}/sub?x"),
        format!("file://{path}/sub#x"),
        format!("file://{path}/sub "),
        format!("file://{path}/sub%20"),
        format!("file://{path}/{}", "x".repeat(5000)),
    ];
    assert_sessions_are_refused(uris.map(|uri| naming(&uri))).await;
}

#[tokio::test]
async fn roots_that_are_no_projects_refuse_the_session() {
    let project = project_with_secret("holds");
    let home = std::env::var("HOME").unwrap();
    let missing = project.path.join("missing");
    let paths = [
        missing.to_str().unwrap(),
        project.path.join("secret").to_str().unwrap(),
        "/",
        "/etc",
        "/usr/lib",
        "/proc/self",
        "/proc/self/root",
        "/tmp",
        "/var",
        "/dev/shm",
        &home,
    ]
    .map(str::to_owned);
    assert_sessions_are_refused(
        paths.iter().map(|path| naming(&format!("file://{path}"))).chain([naming("/"), naming("file:///")]),
    )
    .await;
}

#[tokio::test]
async fn a_link_to_the_whole_disk_is_the_whole_disk() {
    let project = project_with_secret("links");
    let link = project.path.join("link");
    std::os::unix::fs::symlink("/", &link).unwrap();
    let home = project.path.join("home");
    std::os::unix::fs::symlink(std::env::var("HOME").unwrap(), &home).unwrap();
    assert_sessions_are_refused([&link, &home].map(|path| naming(&file_uri(path)))).await;
}

#[tokio::test]
async fn an_error_or_no_root_at_all_means_the_default_scope() {
    let (started_in, named) = (project_with_secret("started-in"), project_with_secret("named"));
    let gateway = Gateway::builder().current_dir(&started_in.path).start().await;
    let explicit =
        Gateway::builder().current_dir(&started_in.path).flag("--scope").flag(&named.path).start().await;
    for (gateway, default, other) in
        [(&gateway, &started_in.path, &named.path), (&explicit, &named.path, &started_in.path)]
    {
        for answer in [Ok(json!({"roots": []})), Err(json!({"code": -32601, "message": "no roots here"}))] {
            let client = open(gateway).await;
            let exchange =
                client.call_tool_answering("working_directory", json!({}), |_| answer.clone()).await;
            assert_eq!(text_of(&exchange.response), default.to_string_lossy(), "{answer:?}");
            assert_works_in(&client, default).await;
            assert_kept_out_of(&client, other).await;
        }
        // A client without roots is not asked.
        let client = gateway.open().await;
        let exchange = client.call_tool_answering("working_directory", json!({}), |_| panic!()).await;
        assert_eq!(text_of(&exchange.response), default.to_string_lossy());
        assert_works_in(&client, default).await;
    }
}

#[tokio::test]
async fn without_a_default_scope_clients_must_name_theirs() {
    let project = project_with_secret("named");
    let gateway = Gateway::builder().current_dir(&project.path).flag("--no-default-scope").start().await;
    for answer in [Ok(json!({"roots": []})), Err(json!({"code": -32601, "message": "no roots here"}))] {
        let client = open(&gateway).await;
        let exchange = client.call_tool_answering("working_directory", json!({}), |_| answer.clone()).await;
        assert_scope_refused(&exchange.response);
        let id = json!("later");
        assert_refused_with_403(&client.post_request(&id, "tools/list", None).await, &id);
    }
    let id = json!(1);
    assert_refused_with_403(&gateway.client().post_initialize(&id, json!({}), NEWEST).await, &id);

    let client = window(&gateway, &project.path).await;
    assert_works_in(&client, &project.path).await;
}

#[tokio::test]
async fn the_first_root_is_the_scope_and_what_follows_does_not_matter() {
    let gateway = Gateway::builder().start().await;
    let (first, second) = (project_with_secret("first"), project_with_secret("second"));
    for following in [file_uri(&second.path), "file:///".into(), "http://x".into(), "file:///no/such".into()]
    {
        let client = open(&gateway).await;
        let answer = json!({"roots": [{"uri": file_uri(&first.path)}, {"uri": following}]});
        assert_eq!(lock(&client, answer).await, first.path.to_string_lossy());
        assert_works_in(&client, &first.path).await;
        assert_kept_out_of(&client, &second.path).await;
        let heard = client.call_tool_for_text("ask", json!({"kind": "roots"})).await;
        let heard: Value = serde_json::from_str(&heard).unwrap();
        assert_eq!(heard["roots"].as_array().map(Vec::len), Some(1), "{heard}");
    }
}

#[tokio::test]
async fn all_roots_are_the_scope_if_the_operator_says_so_and_each_must_be_good() {
    let gateway = Gateway::builder().flags(["--roots", "all"]).start().await;
    let projects = ["first", "second", "third", "other"].map(project_with_secret);
    let client = open(&gateway).await;
    let paths: Vec<&Path> = projects[..3].iter().map(|project| project.path.as_path()).collect();
    assert_eq!(lock(&client, roots(&paths)).await, projects[0].path.to_string_lossy());
    for path in paths {
        assert_works_in(&client, path).await;
    }
    assert_kept_out_of(&client, &projects[3].path).await;
    let heard: Value =
        serde_json::from_str(&client.call_tool_for_text("ask", json!({"kind": "roots"})).await).unwrap();
    let uris: Vec<_> = heard["roots"].as_array().unwrap().iter().map(|root| root["uri"].clone()).collect();
    assert_eq!(uris, projects[..3].iter().map(|project| json!(file_uri(&project.path))).collect::<Vec<_>>());

    let good = file_uri(&projects[0].path);
    for bad in ["file:///", "http://x", "file:///no/such", "relative", "file:///etc"] {
        let answer = json!({"roots": [{ "uri": good }, { "uri": bad }]}).to_string();
        assert_session_is_refused(&gateway, &answer).await;
    }
}

#[tokio::test]
async fn the_spellings_of_real_clients_all_name_the_project() {
    let gateway = Gateway::builder().start().await;
    let parent = project_with_secret("parent");
    let project = add_directory(&parent, "mit Leerzeichen und ü");
    let path = project.to_string_lossy().into_owned();
    let encoded = path.replace(' ', "%20").replace('ü', "%C3%BC");
    for uri in [
        path.clone(),
        format!("{path}/"),
        format!("file://{encoded}"),
        format!("file://{encoded}/"),
        format!("file://localhost{encoded}"),
        format!("file://{}", path.replace(' ', "%20").replace('ü', "%c3%bc")),
    ] {
        let client = open(&gateway).await;
        assert_eq!(lock(&client, json!({"roots": [{ "uri": uri }]})).await, path, "{uri}");
        assert_works_in(&client, &project).await;
        assert_kept_out_of(&client, &parent.path).await;
    }
}

#[tokio::test]
async fn a_link_to_a_project_means_the_project_also_when_the_link_is_moved_later() {
    let gateway = Gateway::builder().start().await;
    let (holder, project, other) =
        (project_with_secret("holder"), project_with_secret("real"), project_with_secret("other"));
    let link = holder.path.join("link");
    std::os::unix::fs::symlink(&project.path, &link).unwrap();
    let client = open(&gateway).await;
    assert_eq!(lock(&client, roots(&[&link])).await, project.path.to_string_lossy());
    assert_works_in(&client, &project.path).await;
    assert_kept_out_of(&client, &holder.path).await;

    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other.path, &link).unwrap();
    client.call_tool("crash", json!({})).await;
    assert_works_in(&client, &project.path).await;
    assert_kept_out_of(&client, &other.path).await;
}

/// What replaces a scope's directory before its server restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Successor {
    Itself,
    AnotherDirectory,
    /// A link to the moved directory.
    LinkToIt,
    LinkToAnother,
    Nothing,
}

#[tokio::test]
async fn what_took_the_place_of_the_locked_directory_is_not_the_scope() {
    use Successor::{AnotherDirectory, Itself, LinkToAnother, LinkToIt, Nothing};
    for successor in [Itself, AnotherDirectory, LinkToIt, LinkToAnother, Nothing] {
        let gateway = Gateway::builder().start().await;
        let (parent, other) = (project_with_secret("parent"), project_with_secret("other"));
        let (path, moved) = (add_directory(&parent, "project"), parent.path.join("moved"));
        let client = window(&gateway, &path).await;
        if successor != Itself {
            std::fs::rename(&path, &moved).unwrap();
        }
        match successor {
            Itself | Nothing => {}
            AnotherDirectory => drop(add_directory(&parent, "project")),
            LinkToIt => std::os::unix::fs::symlink(&moved, &path).unwrap(),
            LinkToAnother => std::os::unix::fs::symlink(&other.path, &path).unwrap(),
        }
        let crashed = client.call_tool("crash", json!({})).await;
        assert_eq!(crashed["error"]["data"]["reason"], "upstream_exited", "{crashed}");
        let file = path.join("written");
        let answer = client.call_tool("write_file", json!({"path": file, "text": "x"})).await;
        if successor == Itself {
            // The control: the next generation works where the first did.
            assert_eq!(text_of(&answer), "written");
            assert!(file.exists());
            continue;
        }
        assert_eq!(answer["error"]["data"]["reason"], "upstream_not_started", "{successor:?}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(!message.contains("crashed"), "{successor:?}: {message}");
        assert!(!file.exists() && !moved.join("written").exists(), "{successor:?}");
        wait_until("nothing runs", async || gateway.descendants().is_empty()).await;
    }
}
