//! Authentication: tokens, separation of principals, TLS, and the addresses that may be bound.

mod binds;
mod tls;
mod token_files;

pub(crate) use tls::write_certificate;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::json;
use testkit::{Gateway, GatewayBuilder, NEWEST, RawClient, Reply, WorkspaceDir, wait_until, workspace_dir};

const ALICE: &str = "alices-token-0123456789";
const BOB: &str = "bobs-token-0123456789ab";
const NOBODY: &str = "nobodys-token-0123456789";

/// The files of a test: tokens for Alice and Bob, and a project for each.
struct Site {
    directory: WorkspaceDir,
}

impl Site {
    fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        for project in ["alice", "bob", "project"] {
            std::fs::create_dir(directory.join(project)).unwrap();
        }
        let site = Self { directory };
        write_private(&site.tokens(), &format!("# callers\nalice:{ALICE}\nbob: {BOB}\n"));
        site
    }

    fn tokens(&self) -> PathBuf {
        self.directory.join("tokens")
    }

    /// Configures a gateway that requires tokens, lets all callers work in the directories of the test, and has its own
    /// cache directory.
    fn gateway(&self, builder: GatewayBuilder) -> GatewayBuilder {
        builder
            .flag("--auth-token-file")
            .flag(self.tokens())
            .flag("--allow-scope")
            .flag(self.directory.path())
            .env("XDG_CACHE_HOME", self.directory.join("caches"))
            .current_dir(self.directory.join("project"))
    }

    async fn start(&self) -> Gateway {
        self.gateway(Gateway::unfenced()).start().await
    }

    fn operator_token(&self, gateway: &Gateway) -> String {
        gateway.operator_token(&self.directory.join("caches"))
    }

    /// Opens a session of a principal in the directory of that name.
    async fn open(&self, gateway: &Gateway, name: &str, token: &str) -> RawClient {
        let project = self.directory.join(name);
        let mut client =
            with_token(gateway.client(), token).with_header("ringfence-workspace", project.to_str().unwrap());
        client.open(json!({}), NEWEST).await;
        client
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    set_mode(path, 0o600);
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn with_token(client: RawClient, token: &str) -> RawClient {
    client.with_header("authorization", &format!("Bearer {token}"))
}

async fn initialize(client: &RawClient) -> Reply {
    client.post_initialize(&json!(1), json!({}), NEWEST).await
}

#[track_caller]
fn assert_unauthorized(reply: &Reply, challenge: &str, what: &str) {
    assert_eq!(reply.status, 401, "{what}: {:?}", reply.body);
    assert_eq!(reply.header("www-authenticate"), Some(challenge), "{what}");
    assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
    assert_eq!(reply.json()["error"]["code"], -32000, "{what}");
    assert_eq!(reply.session_id(), None, "{what}");
}

const WANTED: &str = r#"Bearer realm="ringfence""#;
const INVALID: &str = r#"Bearer realm="ringfence", error="invalid_token""#;

#[tokio::test]
async fn every_path_but_health_wants_a_token() {
    let site = Site::new("auth-paths");
    let gateway = site.start().await;
    let client = gateway.client();
    for (method, path) in [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("PUT", "/mcp"),
        ("HEAD", "/other"),
        ("POST", "/mcp/w/docs"),
        ("POST", &format!("/mcp?access_token={ALICE}")),
        ("GET", "/"),
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/metrics"),
        ("GET", "/sessions"),
        ("DELETE", "/sessions/s-00000000"),
    ] {
        let reply = client.post("{}").method(method).path(path).await;
        assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (401, Some(WANTED)), "{path}");
    }
    assert_unauthorized(&initialize(&client).await, WANTED, "no token");
    assert_unauthorized(&initialize(&with_token(client.clone(), NOBODY)).await, INVALID, "an unknown one");
    for other in ["Basic YTpi", "", ALICE] {
        let reply = initialize(&client.clone().with_header("authorization", other)).await;
        assert_unauthorized(&reply, INVALID, other);
    }
    let twice = client.post("{}").header("authorization", format!("Bearer {ALICE}"));
    let twice = twice.additional_header("authorization", format!("Bearer {ALICE}")).await;
    assert_unauthorized(&twice, INVALID, "two tokens");
    assert_eq!(initialize(&with_token(client.clone(), ALICE)).await.status, 200, "the control");
    let spelled = client.clone().with_header("authorization", &format!("bearer {BOB}"));
    let unknown = spelled.get_stream(None).path("/other").await;
    assert_eq!(unknown.status, 404, "who is known hears that a path is not");

    assert_eq!(client.get_stream(None).path("/health").await.status, 200);
    let ready = client.get_stream(None).path("/ready").await;
    assert_eq!(ready.json(), &json!({"service": "ringfence", "live": true, "ready": true}));
}

#[tokio::test]
async fn the_operators_token_and_those_of_callers_are_for_different_paths() {
    let site = Site::new("auth-operator");
    let gateway = site.start().await;
    let operator = with_token(gateway.client(), &site.operator_token(&gateway));
    let alice = with_token(gateway.client(), ALICE);
    for path in ["/metrics", "/sessions"] {
        assert_eq!(operator.get_stream(None).path(path).await.status, 200, "{path}");
        assert_eq!(alice.get_stream(None).path(path).await.status, 401, "{path}");
    }
    let report = operator.get_stream(None).path("/ready").await;
    assert_eq!(report.json()["upstream"], "ringfence-fixture");
    assert_unauthorized(&initialize(&operator).await, INVALID, "the operator is no caller");
    let metrics = String::from_utf8(operator.get_stream(None).path("/metrics").await.raw).unwrap();
    assert!(metrics.contains(r#"ringfence_denials_total{reason="unknown_token"} 1"#), "{metrics}");
}

#[tokio::test]
async fn with_a_token_any_host_will_do_but_not_any_origin() {
    let site = Site::new("auth-host");
    let gateway = site.start().await;
    let alice = with_token(gateway.client(), ALICE);
    let elsewhere = alice.clone().with_header("host", "gateway.example:8443");
    assert_eq!(initialize(&elsewhere).await.status, 200);
    let page = alice.with_header("origin", "https://evil.example");
    assert_eq!(initialize(&page).await.status, 403);
    let open = Gateway::unfenced().start().await;
    let reply = initialize(&open.client().with_header("host", "gateway.example:8443")).await;
    assert_eq!(reply.status, 403, "the control: without authentication it will not do");
}

#[tokio::test]
async fn the_session_of_another_principal_is_not_found() {
    let site = Site::new("auth-principals");
    let gateway = site.start().await;
    let alice = site.open(&gateway, "alice", ALICE).await;
    let bob = site.open(&gateway, "bob", BOB).await;
    for (owner, other_token) in [(&alice, BOB), (&bob, ALICE)] {
        let mut thief = with_token(gateway.client(), other_token);
        thief.set_session(owner.session_id(), Some(NEWEST));
        let unknown = {
            let mut client = with_token(gateway.client(), other_token);
            client.set_session(Some("00000000-0000-4000-8000-000000000000"), Some(NEWEST));
            client.post_request(&json!(7), "ping", None).await
        };
        let reply = thief.post_request(&json!(7), "ping", None).await;
        assert_eq!((reply.status.as_u16(), reply.json()), (404, unknown.json()), "as if it did not exist");
        assert_eq!(thief.notify("notifications/initialized", None).await.status, 404);
        assert_eq!(thief.respond(&json!(1), json!({})).await.status, 404);
        assert_eq!(thief.get_stream(None).await.status, 404);
        assert_eq!(thief.get_stream(Some("1-1")).await.status, 404);
        assert_eq!(thief.delete().await.status, 404);
        let mut nobody = gateway.client();
        nobody.set_session(owner.session_id(), Some(NEWEST));
        assert_unauthorized(&nobody.delete().await, WANTED, "an id is no token");
        let answer = owner.call_tool_for_text("echo", json!({"text": "mine"})).await;
        assert_eq!(answer, "mine", "its owner still has it");
    }
    let operator = with_token(gateway.client(), &site.operator_token(&gateway));
    let listed = operator.get_stream(None).path("/sessions").await.json().to_string();
    assert!(listed.contains("alice") && listed.contains("bob"), "{listed}");
    assert_eq!(alice.delete().await.status, 204);
    assert_eq!(bob.delete().await.status, 204);
}

#[tokio::test]
async fn the_project_of_another_principal_is_refused() {
    let site = Site::new("auth-projects");
    let gateway = site.start().await;
    let _alice = site.open(&gateway, "alice", ALICE).await;
    let project = site.directory.join("alice");
    let bob = with_token(gateway.client(), BOB).with_header("ringfence-workspace", project.to_str().unwrap());
    assert_eq!(initialize(&bob).await.status, 403);
}

#[tokio::test]
async fn tokens_are_in_no_output() {
    let site = Site::new("auth-silence");
    let audit = site.directory.join("audit.jsonl");
    let builder = site.gateway(Gateway::unfenced()).flag("--audit-log").flag(&audit);
    let mut gateway = builder.flags(["--log-level", "debug"]).start().await;
    let alice = site.open(&gateway, "alice", ALICE).await;
    let environment = alice.call_tool_for_text("environment", json!({})).await;
    let refused = initialize(&with_token(gateway.client(), NOBODY)).await;
    assert_eq!(refused.status, 401);
    // The gateway reports a bad line by its number, without its text.
    write_private(&site.tokens(), &format!("alice:{ALICE}\nalice:{BOB}\n"));
    wait_until("the change is seen", async || {
        alice.request("ping", None).await;
        gateway.log().contains("line 2")
    })
    .await;
    let operator = with_token(gateway.client(), &site.operator_token(&gateway));
    let metrics = String::from_utf8(operator.get_stream(None).path("/metrics").await.raw).unwrap();
    let sessions = String::from_utf8(operator.get_stream(None).path("/sessions").await.raw).unwrap();
    gateway.terminate().await;
    let audit = std::fs::read_to_string(&audit).unwrap();
    let log = format!("{}{}", gateway.stdout().text(), gateway.log());
    let refusal = String::from_utf8(refused.raw).unwrap();
    for (place, text, control) in [
        ("audit", &audit, "a request with an unknown token"),
        ("log", &log, "a request with an unknown token"),
        ("metrics", &metrics, "unknown_token"),
        ("sessions", &sessions, "alice"),
        ("refusal", &refusal, "unknown token"),
        ("environment", &environment, "PATH"),
    ] {
        assert!(text.contains(control), "the control: no {control} in {place}: {text}");
        for token in [ALICE, BOB, NOBODY] {
            assert!(!text.contains(token), "{place} holds {token}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn wrong_tokens_are_limited_and_a_valid_one_passes_all_the_time() {
    let site = Site::new("auth-guessing");
    let builder = site.gateway(Gateway::unfenced()).flags(["--calls-per-second", "100000"]);
    let gateway = builder.start().await;
    let alice = site.open(&gateway, "alice", ALICE).await;
    // From the same address, without a pause, until Alice is done.
    let is_done = Arc::new(AtomicBool::new(false));
    let limited = Arc::new(Mutex::new(None));
    let guess = async |nobody: RawClient, is_done: Arc<AtomicBool>, limited: Arc<Mutex<Option<Reply>>>| {
        while !is_done.load(Ordering::Relaxed) {
            let reply = nobody.delete().send().await.unwrap();
            assert!(matches!(reply.status.as_u16(), 401 | 429), "{}", reply.status);
            if reply.status == 429 {
                *limited.lock() = Some(reply);
            }
        }
    };
    let guesses: Vec<_> = (0..8)
        .map(|_| {
            let nobody = with_token(gateway.client(), NOBODY);
            tokio::spawn(guess(nobody, Arc::clone(&is_done), Arc::clone(&limited)))
        })
        .collect();
    wait_until("wrong tokens are limited", async || limited.lock().is_some()).await;
    for _ in 0..20 {
        *limited.lock() = None;
        wait_until("Alice calls while wrong tokens are limited", async || {
            assert_eq!(alice.call_tool_for_text("echo", json!({"text": "x"})).await, "x");
            let known = with_token(gateway.client(), ALICE).delete().await;
            assert_eq!(known.status, 400, "known, but without a session: {:?}", known.body);
            limited.lock().is_some()
        })
        .await;
    }
    is_done.store(true, Ordering::Relaxed);
    for guess in guesses {
        guess.await.unwrap();
    }
    assert_eq!(limited.lock().take().unwrap().header("retry-after"), Some("1"));
    // Requests without a token do not count as wrong ones.
    for _ in 0..40 {
        assert_eq!(gateway.client().delete().await.status, 401);
    }
    let operator = with_token(gateway.client(), &site.operator_token(&gateway));
    let metrics = String::from_utf8(operator.get_stream(None).path("/metrics").await.raw).unwrap();
    assert!(metrics.contains(r#"ringfence_denials_total{reason="too_many_attempts"}"#), "{metrics}");
}
