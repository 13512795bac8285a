//! The official conformance suite through ringfence, with the server in its fence, compared with a run through the
//! official SDK.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use testkit::{
    Gateway, WorkspaceDir, fixture_binary, node_binary, parts_dir, run_part, within_deadline, workspace_dir,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The scenarios that revision 2025-11-25 requires, from the suite's own list.
const REQUIRED: [&str; 30] = [
    "server-initialize",
    "logging-set-level",
    "ping",
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
];

/// Closes the stream of the polling scenario, whose tool takes 6 s, well before its end and only once: the suite
/// comes back at once and reads only one more stream.
pub(crate) const PARK_ONCE: [&str; 2] = ["--park-after", "4"];

/// Lengthens the built-in deadlines of the suites, which a busy machine would miss.
const PATIENT_TIMERS: &str = include_str!("patient_timers.mjs");

#[derive(Clone, Copy, Debug)]
pub(crate) enum Suite {
    /// 0.1.16, its default suite.
    Published,
    /// 0.2.0-alpha.12, the requirements of 2025-11-25 and the scenarios that it runs with them.
    Alpha,
}

impl Suite {
    fn arguments(self) -> Vec<OsString> {
        let (package, more): (_, &[&str]) = match self {
            Self::Published => ("conformance-0-1", &[]),
            Self::Alpha => ("conformance-0-2", &["--requirements", "2025-11-25"]),
        };
        let script = parts_dir().join("node_modules").join(package).join("dist/index.js");
        let mut arguments = vec![script.into_os_string(), "server".into()];
        arguments.extend(more.iter().map(Into::into));
        arguments
    }

    /// Runs the suite, which must succeed, and returns its results.
    pub(crate) async fn run(self, url: &str, output: &Path) -> Scenarios {
        let timers = workspace_dir("patient-timers");
        std::fs::write(timers.join("patient_timers.mjs"), PATIENT_TIMERS).unwrap();
        let mut arguments = vec!["--import".into(), timers.join("patient_timers.mjs").into_os_string()];
        arguments.extend(self.arguments());
        arguments.extend(["--url".into(), url.into(), "-o".into(), output.into()]);
        let run = run_part(&node_binary(), arguments).await;
        let _ = run.succeeded(&format!("the suite ({self:?}) against {url}"));
        Scenarios::read(output)
    }
}

/// Starts a gateway that fences its server in a directory of its own.
async fn fenced_gateway(flags: &[&str]) -> (Gateway, WorkspaceDir) {
    let scope = workspace_dir("conformance-scope");
    let gateway = Gateway::builder().flags(flags).current_dir(scope.path()).start().await;
    assert!(gateway.log().contains("fences: "), "{}", gateway.log());
    (gateway, scope)
}

/// The id and the status of each check, by scenario.
pub(crate) struct Scenarios(BTreeMap<String, Vec<(String, String)>>);

impl Scenarios {
    /// Reads the files `server-<scenario>-<time>/checks.json` that the suite writes.
    fn read(output: &Path) -> Self {
        let mut scenarios = BTreeMap::new();
        for entry in std::fs::read_dir(output).unwrap() {
            let directory = entry.unwrap().path();
            let name = directory.file_name().unwrap().to_str().unwrap();
            let name = name.strip_prefix("server-").unwrap();
            let (name, _) = name.split_at(name.len() - "-2026-01-01T00-00-00-000Z".len());
            let text = std::fs::read_to_string(directory.join("checks.json")).unwrap();
            let checks: Vec<Value> = serde_json::from_str(&text).unwrap();
            let field = |check: &Value, field: &str| check[field].as_str().unwrap().to_owned();
            let checks = checks.iter().map(|check| (field(check, "id"), field(check, "status"))).collect();
            assert!(scenarios.insert(name.to_owned(), checks).is_none(), "{name} ran twice");
        }
        Self(scenarios)
    }

    /// Asserts that at least one check succeeded, and that the others did or are informational.
    fn assert_passed(&self, scenario: &str) {
        let ran: Vec<_> = self.0.keys().collect();
        let checks = self.0.get(scenario).unwrap_or_else(|| panic!("{scenario} is not among {ran:?}"));
        assert!(checks.iter().any(|(_, status)| status == "SUCCESS"), "{scenario}: {checks:?}");
        let is_fine = |status: &str| matches!(status, "SUCCESS" | "INFO");
        assert!(checks.iter().all(|(_, status)| is_fine(status)), "{scenario}: {checks:?}");
    }

    pub(crate) fn assert_required_passed(&self) {
        for scenario in REQUIRED {
            self.assert_passed(scenario);
        }
    }

    fn assert_succeeded(&self, scenario: &str, expected: &[&str]) {
        self.assert_passed(scenario);
        for check in expected {
            let found = self.0[scenario].iter().find(|(id, _)| id == check);
            let status = found.map(|(_, status)| status.as_str());
            assert_eq!(status, Some("SUCCESS"), "{scenario}: {check}");
        }
    }

    /// Asserts that checks succeeded that the suite does not score.
    fn assert_unscored_succeeded(&self) {
        self.assert_succeeded(
            "server-session-lifecycle",
            &[
                "server-session-initialized-accepted",
                "server-session-delete-accepted",
                "server-session-terminated-returns-404",
            ],
        );
        self.assert_succeeded(
            "json-schema-2020-12",
            &[
                "json-schema-2020-12-tool-found",
                "json-schema-2020-12-$schema",
                "json-schema-2020-12-$defs",
                "json-schema-2020-12-additionalProperties",
                "sep-2106-composition-keywords-preserved",
                "sep-2106-conditional-keywords-preserved",
                "sep-2106-anchor-keyword-preserved",
            ],
        );
        self.assert_succeeded(
            "server-sse-polling",
            &["server-sse-priming-event", "server-sse-retry-field", "server-sse-disconnect-resume"],
        );
    }
}

async fn run_published_suite(lifecycle: &str) {
    let output = workspace_dir("conformance-published");
    let (gateway, _scope) = fenced_gateway(&[lifecycle]).await;
    let scenarios = Suite::Published.run(gateway.url(), output.path()).await;
    scenarios.assert_required_passed();
}

async fn run_alpha_suite(lifecycle: &str) {
    let output = workspace_dir("conformance-alpha");
    let (gateway, _scope) = fenced_gateway(&[&[lifecycle], &PARK_ONCE[..]].concat()).await;
    let scenarios = Suite::Alpha.run(gateway.url(), output.path()).await;
    scenarios.assert_required_passed();
    scenarios.assert_unscored_succeeded();
}

#[tokio::test]
async fn the_published_suite_passes_with_a_process_per_session() {
    run_published_suite("--session-isolation").await;
}

#[tokio::test]
async fn the_published_suite_passes_with_a_shared_process() {
    run_published_suite("--shared").await;
}

#[tokio::test]
async fn the_alpha_suite_passes_with_a_process_per_session() {
    run_alpha_suite("--session-isolation").await;
}

#[tokio::test]
async fn the_alpha_suite_passes_with_a_shared_process() {
    run_alpha_suite("--shared").await;
}

/// A bridge between HTTP and the fixture, made with the official SDK.
struct ReferenceBridge {
    child: Child,
    url: String,
}

impl ReferenceBridge {
    async fn start() -> Self {
        let mut child = Command::new(node_binary())
            .arg(parts_dir().join("reference-bridge.mjs"))
            .arg("--")
            .arg(fixture_binary())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within_deadline("the bridge listens", lines.next_line()).await.unwrap();
        let event: Value = serde_json::from_str(&line.expect("the bridge says where it listens")).unwrap();
        Self { child, url: event["url"].as_str().unwrap().to_owned() }
    }

    /// Closes its standard input and waits: it ends after its children.
    async fn end(mut self) {
        drop(self.child.stdin.take());
        let status = within_deadline("the bridge ends", self.child.wait()).await.unwrap();
        assert!(status.success(), "{status}");
    }
}

async fn compare(reference: &WorkspaceDir, through_ringfence: &WorkspaceDir) -> (bool, Value) {
    let script = parts_dir().join("compare_conformance.mjs");
    let arguments = [script.as_path(), reference.path(), through_ringfence.path()];
    let run = run_part(&node_binary(), arguments).await;
    print!("{}", run.stdout);
    let summary = run.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
    (run.status.success(), summary.unwrap_or_else(|| panic!("no summary: {}", run.stderr)))
}

#[tokio::test]
async fn what_the_suite_sees_through_ringfence_equals_what_it_sees_through_the_official_sdk() {
    let (reference, through_ringfence) = (workspace_dir("reference"), workspace_dir("through-ringfence"));
    let bridge = ReferenceBridge::start().await;
    let expected = Suite::Alpha.run(&bridge.url, reference.path()).await;
    bridge.end().await;
    expected.assert_required_passed();

    let (gateway, _scope) = fenced_gateway(&PARK_ONCE).await;
    Suite::Alpha.run(gateway.url(), through_ringfence.path()).await.assert_required_passed();

    let (is_equal, summary) = compare(&reference, &through_ringfence).await;
    assert!(is_equal, "{summary}");
    assert_eq!((&summary["ok"], &summary["differences"]), (&true.into(), &0.into()));
    assert!(summary["scenarios"].as_u64() >= Some(33) && summary["checks"].as_u64() >= Some(80), "{summary}");

    // The control: one changed word is noticed.
    change_one_word(through_ringfence.path());
    let (is_equal, summary) = compare(&reference, &through_ringfence).await;
    assert!(!is_equal && summary["differences"] == 1, "{summary}");
}

fn change_one_word(output: &Path) {
    let entries = std::fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path());
    let is_simple_text =
        |path: &std::path::PathBuf| path.to_string_lossy().contains("tools-call-simple-text");
    let checks = entries.into_iter().find(is_simple_text).unwrap().join("checks.json");
    let text = std::fs::read_to_string(&checks).unwrap();
    let changed = text.replacen("This is a simple text", "This was a simple text", 1);
    assert_ne!(text, changed);
    std::fs::write(&checks, changed).unwrap();
}

#[tokio::test]
async fn the_comparison_notices_every_kind_of_difference() {
    let arguments = ["--test".into(), parts_dir().join("compare_conformance.test.mjs")];
    let _ = run_part(&node_binary(), arguments).await.succeeded("the tests of the comparison");
}
