//! Races: names are exchanged with links to the outside while an unfenced server works on them, thousands of times
//! with every tool. As a control, the same attack succeeds against a reader that checks first and opens later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::ground::{Ground, INSIDE, NAME_OUTSIDE, SECRET, Server};

/// Calls per tool. Shells get fewer, because starting one takes longer than opening a file.
const CALLS: usize = 2000;
const SHELL_CALLS: usize = 200;
/// Calls in flight, below the limit of 32 long ones that the server accepts.
const AT_ONCE: usize = 16;
const MAX_CONTROL_ROUNDS: u64 = 5_000_000;

/// Exchanges `dir` with a link to `outside`, and `f` with a link to a file there, until it is dropped.
struct Attack {
    is_over: Arc<AtomicBool>,
    flips: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Attack {
    fn on(ground: &Ground) -> Self {
        ground.link("dir-link", "../outside");
        ground.link("f-link", "../outside/f");
        let (is_over, flips) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let pairs = ["dir", "f"].map(|name| (ground.inside(name), ground.inside(format!("{name}-link"))));
        let (ended, counted) = (Arc::clone(&is_over), Arc::clone(&flips));
        let attack = move || {
            while !ended.load(Ordering::Relaxed) {
                for (one, other) in &pairs {
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                }
                if counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(15) {
                    std::thread::yield_now();
                }
            }
        };
        Self { is_over, flips, thread: Some(std::thread::spawn(attack)) }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(std::thread::JoinHandle::join));
    }
}

/// A tool, the number of its calls, and the arguments of the n-th call.
type Hostile = (&'static str, usize, fn(usize) -> Value);

const TOOLS: &[Hostile] = &[
    ("read_file", CALLS, |_| json!({ "path": "dir/f" })),
    ("read_file", CALLS, |_| json!({ "path": "f" })),
    ("read_file", CALLS, |_| json!({ "path": "dir/sub/../sub/f" })),
    ("write_file", CALLS, |n| json!({ "path": "dir/written", "content": format!("{INSIDE}{n}\n") })),
    ("edit_file", CALLS, |n| json!({ "path": format!("dir/edited-{}", n % 32), "code_edit": INSIDE })),
    (
        "edit_file",
        CALLS,
        |n| json!({ "path": "dir/victim", "code_edit": format!("{INSIDE}{n}\n"), "full_replace": true }),
    ),
    ("search_replace", CALLS, |n| {
        let (old, new) = if n.is_multiple_of(2) { ("fine", "good") } else { ("good", "fine") };
        json!({ "path": "dir/sub/f", "old_string": old, "new_string": new })
    }),
    ("multi_edit", CALLS, |n| {
        let (old, new) = if n.is_multiple_of(2) { ("inside", "within") } else { ("within", "inside") };
        json!({ "path": "dir/sub/f", "edits": [{ "old_string": old, "new_string": new }] })
    }),
    (
        "apply_patch",
        CALLS,
        |n| json!({ "patch": format!("--- /dev/null\n+++ b/dir/sub/patched-{n}\n@@ -0,0 +1 @@\n+patched\n") }),
    ),
    ("list_dir", CALLS, |_| json!({ "path": "dir" })),
    ("directory_tree", CALLS, |_| json!({ "path": "dir", "depth": 1 })),
    ("file_search", CALLS, |_| json!({ "path": "dir", "query": "only outside" })),
    ("grep_search", CALLS, |_| json!({ "path": "dir", "query": "SECRET|fine", "include_pattern": "f" })),
    ("grep_search", CALLS, |_| json!({ "path": "f", "query": "SECRET|fine" })),
    ("file_info", CALLS, |_| json!({ "path": "dir/f" })),
    ("create_directory", CALLS, |n| json!({ "path": format!("dir/made/{n}") })),
    ("move_file", CALLS, |n| {
        let (from, to) = if n.is_multiple_of(2) { ("dir/old", "dir/new") } else { ("dir/new", "dir/old") };
        json!({ "source": from, "destination": to, "overwrite": true })
    }),
    ("move_file", CALLS, |n| {
        let (from, to) = if n.is_multiple_of(2) { ("spare", "dir/spare") } else { ("dir/spare", "spare") };
        json!({ "source": from, "destination": to })
    }),
    ("copy_file", CALLS, |n| json!({ "source": "dir/f", "destination": format!("copies/{n}") })),
    ("copy_file", CALLS, |n| json!({ "source": "kept", "destination": format!("dir/copies/{n}") })),
    ("delete_file", CALLS, |n| json!({ "path": format!("dir/copies/{n}") })),
    ("run_terminal_cmd", SHELL_CALLS, |_| json!({ "working_directory": "dir", "command": "cat f; ls" })),
];

/// Whether an answer reveals anything outside.
fn is_escape(answer: &Value) -> bool {
    let text = answer.to_string();
    let secret_size = SECRET.len() as u64;
    text.contains(SECRET)
        || (text.contains(NAME_OUTSIDE) && !text.contains("no file matches"))
        || answer["result"]["structuredContent"]["size"] == secret_size
}

async fn assert_no_escape(server: &mut Server, method: &str, name: &str, calls: Vec<Value>) {
    let count = calls.len();
    let calls: Vec<(&str, Value)> = calls.into_iter().map(|params| (method, params)).collect();
    let answers = server.pipeline(&calls, AT_ONCE).await;
    let is_refused = |answer: &&Value| answer["result"]["isError"] == true || answer["error"].is_object();
    let refused = answers.iter().filter(is_refused).count();
    println!("{name}: {count} calls, {refused} refused");
    let escape = answers.iter().find(|answer| is_escape(answer));
    assert!(escape.is_none(), "{name}: {escape:?}");
    assert!(refused < count, "{name} never works, which proves nothing: {}", answers[0]);
    assert!(refused > 0, "{name} never met an exchanged name");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_of_thousands_of_races_with_every_tool_never_leads_outside() {
    assert_ne!(INSIDE.len(), SECRET.len(), "the size of a file tells which one it is");
    let ground = Ground::new("tool-races");
    ground.write("spare", INSIDE);
    ground.write("kept", INSIDE);
    let mut server = ground.unfenced(&[]).await;
    let before = ground.outside();
    let attack = Attack::on(&ground);
    for (tool, count, arguments) in TOOLS {
        let calls = (0..*count).map(|n| json!({ "name": tool, "arguments": arguments(n) })).collect();
        assert_no_escape(&mut server, "tools/call", tool, calls).await;
        assert_eq!(ground.outside(), before, "{tool}: nothing outside was touched");
    }
    let uri = format!("file://{}", ground.inside("dir/f").display());
    for method in ["resources/read", "resources/subscribe"] {
        let calls = (0..CALLS).map(|_| json!({ "uri": uri })).collect();
        assert_no_escape(&mut server, method, method, calls).await;
    }
    let flips = attack.flips.load(Ordering::Relaxed);
    drop(attack);
    println!("{flips} flips");
    assert_eq!(ground.outside(), before, "nothing outside was touched");
    for copy in std::fs::read_dir(ground.inside("copies")).unwrap() {
        assert_ne!(std::fs::read_to_string(copy.unwrap().path()).unwrap(), SECRET);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_attack_leads_outside_whoever_looks_first() {
    let ground = Ground::new("tool-races-control");
    let root = ground.inside("").canonicalize().unwrap();
    let _attack = Attack::on(&ground);
    for path in ["dir/f", "f"].map(|name| root.join(name)) {
        let escaped = (0..MAX_CONTROL_ROUNDS).any(|_| {
            path.canonicalize().is_ok_and(|real| real.starts_with(&root))
                && std::fs::read_to_string(&path).is_ok_and(|seen| seen == SECRET)
        });
        assert!(escaped, "{}: the attack does not work", path.display());
    }
}
