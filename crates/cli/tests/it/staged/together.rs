//! Sessions and servers of one copy share it, and no one else has it.

use serde_json::json;
use staging::Method;
use testkit::{NEWEST, RawClient};

use super::{Site, open_copy, open_in, shell};

#[tokio::test]
async fn sessions_of_one_copy_see_at_once_what_the_others_do() {
    let site = Site::new("shared");
    site.copy("task", Method::Overlay);
    let gateway = site.serve().start().await;
    let (one, other) = (open_copy(&gateway, "task").await, open_copy(&gateway, "task").await);
    for round in 0..10 {
        // A name that was looked for and not found must be found once it is there.
        let missing = shell(&other, &format!("cat round-{round}.txt")).await;
        assert!(missing.contains("No such file"), "{missing}");
        shell(&one, &format!("echo {round} > round-{round}.txt")).await;
        let seen = shell(&other, &format!("cat round-{round}.txt")).await;
        assert!(seen.starts_with(&round.to_string()), "{seen}");
    }
    assert!(!site.project.has("round-0.txt"));
    // A session of the project itself sees none of it.
    let plain = open_in(&gateway, site.path()).await;
    assert!(shell(&plain, "ls").await.contains("kept.txt"), "the control");
    assert!(!shell(&plain, "ls").await.contains("round-0.txt"));
}

#[tokio::test]
async fn twenty_copies_of_one_project_are_apart() {
    let site = Site::new("twenty");
    let gateway = site.staged().await;
    let clients: Vec<RawClient> =
        futures_util::future::join_all((0..20).map(|_| open_in(&gateway, site.path()))).await;
    let write = |(number, client)| async move {
        shell(client, &format!("echo {number} > kept.txt; echo {number} > own-{number}.txt")).await
    };
    futures_util::future::join_all(clients.iter().enumerate().map(write)).await;
    for (number, client) in clients.iter().enumerate() {
        let seen = shell(client, "cat kept.txt; ls own-*").await;
        assert!(seen.starts_with(&format!("{number}\nown-{number}.txt")), "{seen}");
    }
    assert_eq!(site.project.text("kept.txt"), "from the project\n");
}

#[tokio::test]
async fn a_copy_of_one_principal_does_not_exist_for_another() {
    let site = Site::new("principals");
    site.project.write("../tokens-of-staged", "");
    let directory = testkit::workspace_dir("tokens");
    let tokens = directory.join("tokens");
    let make = |name: &str| {
        let output = std::process::Command::new(testkit::ringfence_binary())
            .args(["token", "create", name, "--file"])
            .arg(&tokens)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (alice, bob) = (make("alice"), make("bob"));
    let gateway = site
        .serve()
        .flag("--stage")
        .flag("--auth-token-file")
        .flag(&tokens)
        .flag("--allow-scope")
        .flag(site.path())
        .start()
        .await;
    let client = |token: &str, url: String| {
        RawClient::new(url).with_header("authorization", &format!("Bearer {token}"))
    };
    let mut of_alice = client(&alice, gateway.url().to_owned())
        .with_header("ringfence-workspace", site.path().to_str().unwrap());
    of_alice.open(json!({}), NEWEST).await;
    shell(&of_alice, "echo secret > of-alice.txt").await;
    let name = site.copies()[0].record().name.to_string();
    let at = |token: &str| client(token, format!("{}/w/{name}", gateway.url()));
    let refused = at(&bob).post_initialize(&json!(1), json!({}), NEWEST).await;
    assert_eq!(refused.status, 403, "{}", refused.json());
    assert!(!refused.json().to_string().contains("alice"), "{}", refused.json());
    // The control: its own principal comes back to it.
    let mut again = at(&alice);
    again.open(json!({}), NEWEST).await;
    assert!(shell(&again, "cat of-alice.txt").await.starts_with("secret"));
}
