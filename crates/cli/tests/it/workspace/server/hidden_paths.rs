//! A path that the fence does not show: the result of the command that failed says so, and not whether it exists.

use std::path::Path;

use serde_json::json;
use testkit::{Project, WorkspaceDir, workspace_dir};

use super::Desk;
use crate::workspace::security::ground::tiers;

fn outside() -> WorkspaceDir {
    let outside = workspace_dir("hidden-outside");
    std::fs::write(outside.join("there"), "contents").unwrap();
    outside
}

impl Desk {
    async fn told(&self, command: &str) -> (bool, Option<String>) {
        let ran = self.call("run_terminal_cmd", json!({"command": command, "wait_seconds": 45})).await;
        let note = ran.text.lines().find(|line| line.starts_with("[ringfence: ")).map(str::to_owned);
        (ran.is_error(), note)
    }
}

fn remedy(path: &Path) -> String {
    format!("--read {}", path.display())
}

#[tokio::test]
async fn a_path_that_is_not_shown_is_named_with_the_option_and_not_whether_it_exists() {
    let outside = outside();
    let [_, tier_b] = tiers();
    let desk = Desk::with_flags(Project::new("hidden"), &tier_b).await;
    let mut notes = Vec::new();
    for name in ["there", "missing"] {
        let path = outside.join(name);
        for command in ["cat PATH", "sh -c 'cd PATH'", "python3 -c 'open(\"PATH\")'", "PATH --version"] {
            let command = command.replace("PATH", path.to_str().unwrap());
            let (failed, note) = desk.told(&command).await;
            let note = note.unwrap_or_else(|| panic!("{command}: no note"));
            assert!(failed && note.contains(&remedy(&path)), "{command}: {note}");
            notes.push(note.replace(name, "NAME"));
        }
    }
    notes.dedup();
    assert_eq!(notes.len(), 1, "what exists and what does not are told alike: {notes:?}");

    // The controls: what is really missing, what fails for another reason, and what is handled by the command.
    for (command, fails) in [
        ("cat missing".to_owned(), true),
        ("cat /usr/share/missing-from-the-system".to_owned(), true),
        ("cat /tmp/missing".to_owned(), true),
        ("exit 3".to_owned(), true),
        (format!("cat {} || true", outside.join("there").display()), false),
    ] {
        assert_eq!(desk.told(&command).await, (fails, None), "{command}");
    }
    let shown = [&tier_b[..], &["--read", outside.path().to_str().unwrap()]].concat();
    let desk = Desk::with_flags(Project::new("shown"), &shown).await;
    assert_eq!(desk.told(&format!("cat {}", outside.join("there").display())).await, (false, None));
    let missing = desk.told(&format!("cat {}", outside.join("missing").display())).await;
    assert_eq!(missing, (true, None), "the directory is shown, so the file is really missing");
}

#[tokio::test]
async fn without_a_root_of_its_own_a_fence_refuses_what_is_there_and_is_not_blamed_for_what_is_not() {
    let outside = outside();
    let [tier_a, _] = tiers();
    let desk = Desk::with_flags(Project::new("hidden-a"), &tier_a).await;
    let (failed, note) = desk.told(&format!("cat {}", outside.join("there").display())).await;
    assert!(failed && note.as_ref().is_some_and(|note| note.contains("--read PATH")), "{note:?}");
    assert_eq!(desk.told("cat /usr/share/missing-from-the-system").await, (true, None));
}
