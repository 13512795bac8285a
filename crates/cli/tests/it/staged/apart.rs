//! A copy and its project are apart: nothing that a session does changes the project.

use serde_json::json;
use staging::Method;
use testkit::{NEWEST, wait_until};

use super::{Site, names_in, open_copy, open_in, shell};

#[tokio::test]
async fn a_staged_session_leaves_its_project_as_it_is() {
    let site = Site::new("apart");
    let gateway = site.staged().await;
    let client = open_in(&gateway, site.path()).await;
    let directory = site.path().display();
    let output = shell(
        &client,
        &format!("pwd && cat kept.txt && echo changed > kept.txt && mkdir deep && echo new > {directory}/deep/new.txt"),
    )
    .await;
    assert!(output.contains(&format!("{directory}\nfrom the project\n")), "{output}");
    let written = client.call_tool("write_file", json!({"path": "tool.txt", "content": "by a tool\n"})).await;
    assert!(written["result"]["isError"] != true, "{written}");
    assert_eq!(shell(&client, "cat kept.txt deep/new.txt tool.txt").await.lines().next().unwrap(), "changed");
    assert_eq!(names_in(site.path()), ["kept.txt"]);
    assert_eq!(site.project.text("kept.txt"), "from the project\n");
    // The control: without --stage the same command reaches the project.
    let plain = site.serve().start().await;
    shell(&open_in(&plain, site.path()).await, "echo changed > kept.txt").await;
    assert_eq!(site.project.text("kept.txt"), "changed\n");
}

#[tokio::test]
async fn no_name_of_the_project_or_of_the_copy_leads_to_the_project() {
    let site = Site::new("names");
    let state = site.state.path().display().to_string();
    for method in [Method::Overlay, Method::Copy] {
        let copy = site.copy(method.as_str(), method);
        let own = copy.directory().display().to_string();
        let gateway = site.serve().start().await;
        let client = open_copy(&gateway, method.as_str()).await;
        let project = site.path().display();
        for attack in [
            format!("echo x > {project}/attack"),
            format!("echo x > /proc/self/root{project}/attack"),
            format!("echo x > /proc/1/root{project}/attack"),
            "echo x > /proc/1/cwd/attack".to_owned(),
            format!("cd / && echo x > .{project}/attack"),
            "ln kept.txt attack-link && echo x > attack-link".to_owned(),
            "chmod 777 kept.txt; touch -d 2001-01-01 kept.txt; setfattr -n user.x -v y kept.txt".to_owned(),
            format!("mount --bind / mnt; umount {project}; echo x > {project}/attack"),
        ] {
            shell(&client, &attack).await;
        }
        assert_eq!(names_in(site.path()), ["kept.txt"], "{method}");
        assert_eq!(site.project.text("kept.txt"), "from the project\n");
        // Where the copy lies cannot be seen: a session could change what is reviewed.
        for hidden in [&state, &own] {
            let seen = shell(&client, &format!("ls {hidden}; echo x > {hidden}/attack")).await;
            assert!(seen.contains("No such file") || seen.contains("Permission denied"), "{seen}");
        }
        assert!(!copy.directory().join("attack").exists());
        // The control: the copy has what was written under the project's name.
        assert!(shell(&client, "cat attack").await.contains('x'));
    }
}

#[tokio::test]
async fn an_agent_commits_in_the_copy_and_the_repository_does_not_change() {
    let site = Site::new("commits");
    site.project.git(&["init", "-q", "-b", "main"]);
    site.project.commit_all();
    let before = site.project.git(&["for-each-ref"]);
    let gateway = site.staged().await;
    let client = open_in(&gateway, site.path()).await;
    let output = shell(
        &client,
        "git config user.name A && git config user.email a@example.org && echo more >> kept.txt && \
         git commit -qam changed && git switch -qc topic && git log --oneline | wc -l && \
         echo 'echo hooked' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit",
    )
    .await;
    assert!(output.contains('2'), "{output}");
    assert_eq!(site.project.git(&["for-each-ref"]), before);
    assert!(!site.project.has(".git/hooks/post-commit"));
    assert_eq!(site.project.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_session_that_changed_nothing_leaves_no_copy_and_one_with_changes_keeps_it() {
    let site = Site::new("left");
    let gateway = site.staged().await;
    let (idle, busy) = (open_in(&gateway, site.path()).await, open_in(&gateway, site.path()).await);
    assert_eq!(site.copies().len(), 2);
    shell(&busy, "echo work > work.txt").await;
    for client in [&idle, &busy] {
        assert_eq!(client.delete().await.status, 204);
    }
    wait_until("the unchanged copy is gone", async || site.copies().len() == 1).await;
    let kept = site.copies().remove(0);
    let changes = kept.changes(&staging::ChangeOptions::default()).unwrap();
    assert_eq!(changes.entries.len(), 1);
    let log = gateway.wait_for_log("ringfence session diff").await;
    assert!(log.contains(&kept.record().name.to_string()), "{log}");
}

#[tokio::test]
async fn what_cannot_be_staged_is_refused_and_says_why() {
    let site = Site::new("refused");
    for (option, reason) in [("--shared", "--shared"), ("--unfenced", "--unfenced")] {
        let started = site.serve().flag("--stage").flag(option).flag("--sandbox-scope").flag(site.path());
        let Err(failed) = started.try_start().await else { panic!("{option} was taken") };
        assert!(failed.stderr.contains(reason), "{failed:?}");
    }
    // Several roots have no copy.
    let gateway = site.serve().flag("--stage").flags(["--roots", "all"]).start().await;
    let mut client = gateway.client();
    client.open(json!({"roots": {}}), NEWEST).await;
    let other = Site::new("other");
    let answer = client
        .call_tool_answering("session_info", json!({}), |_| Ok(testkit::roots(&[site.path(), other.path()])))
        .await;
    let text = answer.response.to_string();
    assert!(text.contains("several"), "{text}");
}
