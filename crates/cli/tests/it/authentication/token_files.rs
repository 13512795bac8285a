//! The token file: which files are refused, how changes take effect, and the command that writes it.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::json;
use testkit::{Gateway, ringfence_binary, wait_until};
use tokio::process::Command;

use super::tls::sessions_list;
use super::{ALICE, BOB, NOBODY, Site, initialize, set_mode, with_token, write_private};

async fn ringfence(arguments: &[&str]) -> Output {
    Command::new(ringfence_binary()).args(arguments).output().await.unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_file_that_cannot_be_trusted_is_refused_with_a_hint() {
    let site = Site::new("auth-files");
    let refused = async || {
        let failed = site.gateway(Gateway::unfenced()).try_start().await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
        assert!(!failed.stderr.contains(ALICE) && !failed.stderr.contains(BOB), "{}", failed.stderr);
        failed.stderr
    };
    for mode in [0o640, 0o604, 0o620, 0o601] {
        set_mode(&site.tokens(), mode);
        let told = refused().await;
        assert!(told.contains(&format!("mode {mode:03o}")) && told.contains("hint: chmod 600"), "{told}");
    }
    for (text, expected) in [
        (format!("alice:{ALICE}\n\nalice:{BOB}\n"), "line 3: line 1 has the same name"),
        (format!("alice:{ALICE}\nbob:{ALICE}\n"), "line 2: line 1 has the same token"),
        (format!("anonymous:{ALICE}\n"), "line 1: the text before"),
        ("alice:short\n".to_owned(), "line 1: the token is shorter than 16"),
        (format!("{ALICE}\n"), "line 1: there is no `:`"),
        ("#\n".repeat(10_001), "longer than 10000 lines"),
    ] {
        write_private(&site.tokens(), &text);
        let told = refused().await;
        assert!(told.contains(expected) && told.contains("hint: "), "{expected}: {told}");
    }
    std::fs::remove_file(site.tokens()).unwrap();
    let told = refused().await;
    assert!(told.contains("ringfence token create NAME --file"), "{told}");
    std::fs::create_dir(site.tokens()).unwrap();
    assert!(refused().await.contains("not a regular file"));
    std::fs::remove_dir(site.tokens()).unwrap();
    write_private(&site.tokens(), &"#\n".repeat(10_000));
    site.start().await;
}

#[tokio::test]
async fn a_changed_file_counts_and_a_bad_one_does_not() {
    let site = Site::new("auth-change");
    let gateway = site.start().await;
    let status = async |token: &str| {
        // Unknown tokens are rate-limited by address, so try again until the limit is lifted.
        let mut status = 429;
        wait_until("the address need not wait", async || {
            status = with_token(gateway.client(), token).delete().await.status.as_u16();
            status != 429
        })
        .await;
        status
    };
    assert_eq!((status(ALICE).await, status(NOBODY).await), (400, 401), "400: known, but without a session");
    write_private(&site.tokens(), &format!("carol:{NOBODY}\nalice:{ALICE}\n"));
    wait_until("a new caller is known", async || status(NOBODY).await == 400).await;
    assert_eq!((status(ALICE).await, status(BOB).await), (400, 401), "one stayed, one was removed");

    let replacement = site.directory.join("replacement");
    write_private(&replacement, "alice\n");
    std::fs::rename(&replacement, site.tokens()).unwrap();
    wait_until("a bad file is told", async || {
        assert_eq!(status(ALICE).await, 400);
        gateway.log().contains("cannot be used")
    })
    .await;
    write_private(&replacement, &format!("bob:{BOB}\n"));
    std::fs::rename(&replacement, site.tokens()).unwrap();
    wait_until("a good file is taken up again", async || status(BOB).await == 400).await;
    assert_eq!(status(ALICE).await, 401);
    set_mode(&site.tokens(), 0o644);
    wait_until("a file that others can read is told", async || {
        assert_eq!(status(BOB).await, 400);
        gateway.log().contains("mode 644")
    })
    .await;
}

#[tokio::test]
async fn what_a_removed_caller_has_open_ends() {
    let site = Site::new("auth-revocation");
    let gateway = site.start().await;
    let alice = site.open(&gateway, "alice", ALICE).await;
    let bob = site.open(&gateway, "bob", BOB).await;
    for client in [&alice, &bob] {
        client.call_tool_for_text("echo", json!({"text": "x"})).await;
    }
    let mut stream = alice.get_stream(None).send().await.unwrap().into_events();
    let session = alice.session_id().unwrap().to_owned();
    // Replacing a token, such as a stolen one, revokes it.
    write_private(&site.tokens(), &format!("alice:{NOBODY}\nbob:{BOB}\n"));
    stream.remaining_messages().await;
    wait_until("one session is left", async || {
        let list = sessions_list(&site).await;
        list.contains("bob") && !list.contains("alice")
    })
    .await;
    assert_eq!(bob.call_tool_for_text("echo", json!({"text": "still here"})).await, "still here");

    write_private(&site.tokens(), &format!("alice:{ALICE}\nbob:{BOB}\n"));
    let mut back = with_token(gateway.client(), ALICE);
    back.set_session(Some(&session), None);
    wait_until("a caller that comes back does not find the session", async || {
        let reply = back.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).send().await.unwrap();
        reply.status == 404
    })
    .await;
}

#[tokio::test]
async fn the_command_makes_a_token_that_works_and_keeps_only_its_hash() {
    let site = Site::new("auth-command");
    std::fs::remove_file(site.tokens()).unwrap();
    let path = site.tokens();
    let path = path.to_str().unwrap();
    let made = ringfence(&["token", "alice", "--file", path]).await;
    assert!(made.status.success(), "{}", said(&made));
    let token = String::from_utf8(made.stdout).unwrap();
    assert_eq!(token.trim_end().len(), 64, "{token}");
    assert_eq!(site.tokens().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("alice:sha256:") && !text.contains(token.trim_end()), "{text}");

    std::fs::write(path, text.trim_end()).unwrap();
    let second = ringfence(&["token", "bob", "--file", path]).await;
    assert!(second.status.success(), "{}", said(&second));
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
    let gateway = site.start().await;
    for token in [token.trim_end(), String::from_utf8(second.stdout).unwrap().trim_end()] {
        assert_eq!(with_token(gateway.client(), token).delete().await.status, 400);
    }
    assert_eq!(initialize(&with_token(gateway.client(), token.trim_end())).await.status, 200);

    for (arguments, expected) in [
        (vec!["token", "alice", "--file", path], "has a token already"),
        (vec!["token", "anonymous", "--file", path], "cannot be a name"),
        (vec!["token", "a b"], "cannot be a name"),
    ] {
        let refused = ringfence(&arguments).await;
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(said(&refused).contains(expected) && said(&refused).contains("hint: "), "{}", said(&refused));
        assert!(refused.stdout.is_empty());
    }
    let alone = ringfence(&["token", "carol"]).await;
    assert!(alone.status.success() && said(&alone).contains("carol:sha256:"), "{}", said(&alone));
    assert_eq!(alone.stdout.trim_ascii().len(), 64);
}
