//! What a client can see of the changes in its copy, and what it may do with them.

use serde_json::json;
use testkit::wait_until;

use super::{Site, at_session, changed_paths, open_in, shell};

#[tokio::test]
async fn a_client_sees_what_changed_and_takes_over_only_where_the_operator_lets_it() {
    let site = Site::new("review");
    let gateway = site.staged().await;
    let client = open_in(&gateway, site.path()).await;
    shell(
        &client,
        "echo changed > kept.txt; echo new > new.txt; mkdir -p .vscode; echo {} > .vscode/tasks.json",
    )
    .await;
    let (status, report) = at_session(&client, "GET", "changes?diff=true", None).await;
    assert_eq!(
        (status, changed_paths(&report)),
        (
            200,
            vec![
                ".vscode".to_owned(),
                ".vscode/tasks.json".to_owned(),
                "kept.txt".to_owned(),
                "new.txt".to_owned()
            ]
        ),
        "{report}"
    );
    let diff = report["diff"].as_str().unwrap();
    assert!(diff.contains("-from the project") && diff.contains("+changed"), "{diff}");
    let (status, refused) = at_session(&client, "POST", "apply", None).await;
    assert_eq!(status, 403, "{refused}");
    assert_eq!(site.project.text("kept.txt"), "from the project\n");

    let gateway = site.serve().flag("--stage").flag("--allow-apply").start().await;
    let client = open_in(&gateway, site.path()).await;
    shell(
        &client,
        "echo changed > kept.txt; echo new > new.txt; mkdir -p .vscode; echo {} > .vscode/tasks.json",
    )
    .await;
    let (status, bad) = at_session(&client, "POST", "apply", Some(json!({"onlyy": []}))).await;
    assert_eq!(status, 400, "{bad}");
    let some = json!({"only": ["new.txt"]});
    let (status, applied) = at_session(&client, "POST", "apply", Some(some)).await;
    assert_eq!((status, &applied["paths"]), (200, &json!(["new.txt"])), "{applied}");
    assert_eq!(
        (site.project.text("new.txt").as_str(), site.project.text("kept.txt").as_str()),
        ("new\n", "from the project\n")
    );
    // What programs on the host execute is taken over only if it is asked for.
    let (status, applied) = at_session(&client, "POST", "apply", None).await;
    assert_eq!(status, 200, "{applied}");
    assert!(applied["executables_left_out"].to_string().contains("tasks.json"), "{applied}");
    assert!(!site.project.has(".vscode/tasks.json"));
    assert_eq!(site.project.text("kept.txt"), "changed\n");
}

#[tokio::test]
async fn an_agent_takes_over_with_a_tool_that_the_operator_offers() {
    let site = Site::new("tool");
    for offered in [true, false] {
        let gateway = if offered {
            site.serve().flag("--stage").flag("--allow-apply").start().await
        } else {
            site.staged().await
        };
        let client = open_in(&gateway, site.path()).await;
        let listed = client.request("tools/list", None).await.to_string();
        assert_eq!(listed.contains("session_apply"), offered);
        let file = format!("offered-{offered}.txt");
        shell(&client, &format!("echo new > {file}; mkdir -p .vscode; echo {{}} > .vscode/tasks.json")).await;
        let only = json!({"only": [file]});
        let answer = client.call_tool("session_apply", only).await.to_string();
        assert_eq!(site.project.has(&file), offered, "{answer}");
        if offered {
            let nothing = client.call_tool("session_apply", json!({"only": ["no-such-file"]})).await;
            assert!(nothing.to_string().contains("nothing that changed matches"), "{nothing}");
            let rest = testkit::text_of(&client.call_tool("session_apply", json!({})).await);
            assert!(rest.contains("left to the user") && rest.contains("tasks.json"), "{rest}");
            assert!(!site.project.has(".vscode/tasks.json"));
        }
    }
    // A session that works in the project itself has nothing to take over.
    let plain = site.serve().flag("--allow-apply").start().await;
    let client = open_in(&plain, site.path()).await;
    let refused = client.call_tool("session_apply", json!({})).await;
    assert!(refused.to_string().contains("not in a copy"), "{refused}");
}

#[tokio::test]
async fn changes_that_the_project_made_too_are_a_conflict() {
    let site = Site::new("conflict");
    let gateway = site.serve().flag("--stage").flag("--allow-apply").start().await;
    let client = open_in(&gateway, site.path()).await;
    shell(&client, "echo agent > kept.txt; echo new > new.txt").await;
    site.project.write("kept.txt", "human, and longer\n");
    let (status, refused) = at_session(&client, "POST", "apply", None).await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused.to_string().contains("kept.txt"), "{refused}");
    assert_eq!(site.project.text("kept.txt"), "human, and longer\n");
    assert!(!site.project.has("new.txt"), "all or nothing");
}

#[tokio::test]
async fn a_client_discards_its_copy_where_the_operator_lets_it() {
    let site = Site::new("discard");
    let gateway = site.serve().flag("--stage").flag("--allow-apply").start().await;
    let client = open_in(&gateway, site.path()).await;
    shell(&client, "echo new > new.txt").await;
    let (status, report) = at_session(&client, "POST", "discard", None).await;
    assert_eq!(status, 200, "{report}");
    wait_until("the copy is in the trash", async || site.copies().is_empty()).await;
    assert_eq!(site.workspaces().trash().unwrap().len(), 1);
    assert!(!site.project.has("new.txt"));
}
