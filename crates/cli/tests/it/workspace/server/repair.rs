//! A real task for real clients: run the tests of a small project, fix its bugs until they pass, commit, and look
//! at the session's changes.

#![allow(deprecated, reason = "roots are deprecated in the newest revision, and part of those served here")]

use std::collections::BTreeMap;

use rmcp::model::{CallToolRequestParams, ClientConfig, Implementation, JsonObject, ListRootsResult};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ErrorData, RoleClient, ServiceExt};
use serde_json::{Value, json};
use testkit::{
    Gateway, Project, file_uri, node_binary, parts_dir, python_binary, run_part, wait_until, within_deadline,
};

/// A package with two bugs. The scripts of the other clients contain the same fixes.
const PRICES: &str = "\
\"\"\"Prices of a shop.\"\"\"


def total(items):
    \"\"\"The sum of prices times quantities.\"\"\"
    amount = 0
    for price, quantity in items:
        amount += price + quantity
    return amount


def discounted(amount, percent):
    \"\"\"An amount less a percentage.\"\"\"
    return amount - percent
";

const TESTS: &str = "\
import unittest

from shop.prices import discounted, total


class Prices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([(10, 3), (5, 2)]), 40)

    def test_discounted(self):
        self.assertEqual(discounted(200, 10), 180)
";

fn broken_project() -> Project {
    let project = Project::new("repair");
    project.write("shop/__init__.py", "");
    project.write("shop/prices.py", PRICES);
    project.write("tests/__init__.py", "");
    project.write("tests/test_prices.py", TESTS);
    project.write(".gitignore", "__pycache__/\n");
    project.commit_all();
    project.git(&["config", "user.name", "Test"]);
    project.git(&["config", "user.email", "test@example.com"]);
    project
}

/// Checks from outside: both bugs are fixed in one commit, and the session has ended.
async fn assert_repaired(project: &Project, gateway: &Gateway) {
    let prices = project.text("shop/prices.py");
    assert!(prices.contains("amount += price * quantity\n"), "{prices}");
    assert!(prices.contains("return amount - amount * percent / 100\n"), "{prices}");
    assert_eq!(prices.lines().count(), PRICES.lines().count());
    assert_eq!(project.git(&["log", "--format=%s"]), "Fix the prices\nas it was\n");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
    let tests = std::process::Command::new("python3")
        .args(["-B", "-m", "unittest"])
        .current_dir(&project.path)
        .output()
        .unwrap();
    assert!(tests.status.success(), "{tests:?}");
    let expected = format!("scope={:?} source=\"roots\"", [&project.path]);
    assert!(gateway.log().contains(&expected), "{}", gateway.log());
    wait_until("the session has ended", async || gateway.open_sessions().await == 0).await;
    wait_until("nothing is left of it", async || gateway.descendants().is_empty()).await;
}

async fn gateway_elsewhere() -> (Gateway, Project) {
    let elsewhere = Project::new("elsewhere");
    (Gateway::built_in().current_dir(&elsewhere.path).start().await, elsewhere)
}

async fn repaired_by(program: std::path::PathBuf, script: &str) {
    let project = broken_project();
    let (gateway, _elsewhere) = gateway_elsewhere().await;
    let script = parts_dir().join(script);
    let arguments = [script.as_os_str(), gateway.url().as_ref(), project.path.as_os_str()];
    let run = run_part(&program, arguments).await.succeeded("the repair");
    let outcome: Value = serde_json::from_str(run.stdout.lines().last().unwrap_or_default()).unwrap();
    assert_eq!(outcome, json!({"ok": true, "rounds": 3, "fixed": ["test_discounted", "test_total"]}));
    assert_repaired(&project, &gateway).await;
}

#[tokio::test]
async fn the_typescript_client_repairs_a_project() {
    repaired_by(node_binary(), "repair-ts1.mjs").await;
}

#[tokio::test]
async fn the_python_client_repairs_a_project() {
    repaired_by(python_binary(), "repair_python.py").await;
}

// ---- rmcp, the official Rust SDK ----

/// A client with one root.
struct RustClient {
    directory: String,
}

impl ClientHandler for RustClient {
    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(serde_json::from_value(json!({"roots": [{"uri": self.directory}]})).unwrap())
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = serde_json::from_value(json!({"roots": {}})).unwrap();
        ClientConfig::new(capabilities, Implementation::new("rust-client", "1.0.0"))
    }
}

struct Repair(RunningService<RoleClient, RustClient>);

impl Repair {
    /// Calls a tool; returns its structured content, and whether the call failed.
    async fn call(&self, tool: &'static str, arguments: Value) -> (Value, bool) {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let params = CallToolRequestParams::new(tool).with_arguments(JsonObject::from_iter(arguments));
        let result = within_deadline(tool, self.0.call_tool(params)).await.unwrap();
        let result = serde_json::to_value(&result).unwrap();
        (result["structuredContent"].clone(), result["isError"] == true)
    }

    async fn ok(&self, tool: &'static str, arguments: Value) -> Value {
        let (data, is_error) = self.call(tool, arguments).await;
        assert!(!is_error, "{tool}: {data}");
        data
    }

    async fn test(&self) -> Value {
        self.call("run_terminal_cmd", json!({"command": "python3 -B -m unittest", "wait_seconds": 45}))
            .await
            .0
    }
}

#[tokio::test]
async fn the_rust_client_repairs_a_project() {
    let project = broken_project();
    let (gateway, _elsewhere) = gateway_elsewhere().await;
    crate::bridge::clients_and_servers::install_crypto();
    let transport = StreamableHttpClientTransport::from_uri(gateway.url().to_owned());
    let client = RustClient { directory: file_uri(&project.path) };
    let service = within_deadline("the handshake", client.serve(transport)).await.unwrap();
    let repair = Repair(service);

    let mut fixes = BTreeMap::from([
        (
            "test_total",
            (
                "def total",
                "search_replace",
                json!({"old_string": "price + quantity", "new_string": "price * quantity"}),
            ),
        ),
        (
            "test_discounted",
            (
                "def discounted",
                "edit_file",
                json!({"code_edit": "# ... existing code ...\ndef discounted(amount, percent):\n    \
                    \"\"\"An amount less a percentage.\"\"\"\n    return amount - amount * percent / 100\n"}),
            ),
        ),
    ]);
    let mut ended = repair.test().await;
    while ended["exit_code"] != 0 {
        let output = ended["output"].as_str().unwrap();
        assert!(output.contains("AssertionError"), "{output}");
        let failing = output.lines().find_map(|line| line.strip_prefix("FAIL: ")).unwrap();
        let (place, tool, mut fix) = fixes.remove(failing.split(' ').next().unwrap()).unwrap();
        let found = repair.ok("grep_search", json!({"query": place, "include_pattern": "*.py"})).await;
        assert_eq!(found["total_matches"], 1, "{found}");
        fix["path"] = found["matches"][0]["path"].clone();
        let edited = repair.ok(tool, fix).await;
        assert_eq!((&edited["lines_added"], &edited["lines_removed"]), (&json!(1), &json!(1)), "{edited}");
        ended = repair.test().await;
    }
    assert!(fixes.is_empty(), "{fixes:?}");
    let commit =
        json!({"command": "git commit --quiet --all --message 'Fix the prices' && git status --porcelain"});
    assert_eq!(repair.ok("run_terminal_cmd", commit).await["output"], "");
    let diff = repair.ok("session_diff", json!({})).await;
    let expected =
        json!([{"path": "shop/prices.py", "status": "modified", "lines_added": 2, "lines_removed": 2}]);
    assert_eq!(diff["files"], expected);
    assert_eq!(diff["commands"], "included");
    within_deadline("the end of the session", repair.0.cancel()).await.unwrap();
    assert_repaired(&project, &gateway).await;
}
