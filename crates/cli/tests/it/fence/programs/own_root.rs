//! The root of a command in Tier B is its own: it can be listed, shows what the policy names, and nothing that is made
//! outside later.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use testkit::wait_until;

use super::fenced_run::FencedRun;
use crate::fence::escapes::ground::callers;

const STRICT: &[&str] = &["--net", "none", "--read-mode", "strict"];

async fn tier_b() -> FencedRun {
    FencedRun::new("b", callers()[0]).await
}

fn names(listed: &str) -> BTreeSet<String> {
    listed.lines().map(str::to_owned).collect()
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_can_be_listed_and_shows_the_policy_alone() {
    let run = tier_b().await;
    let (named, other) = (run.ground.outside().join("named"), run.ground.outside().join("other"));
    for directory in [&named, &other] {
        std::fs::create_dir(directory).unwrap();
    }
    run.ground.belongs_to_caller();
    let list = async |directory: &Path, options: &[&str]| {
        let options = [STRICT, options].concat();
        run.run(&options, ["ls", "-A", directory.to_str().unwrap()]).await.succeeded().stdout
    };
    let root = names(&list(Path::new("/"), &[]).await);
    let of_host = names_in(Path::new("/"));
    let first = |path: &Path| path.components().nth(1).unwrap().as_os_str().to_str().unwrap().to_owned();
    for shown in ["usr", "dev", "proc", &first(&run.ground.scope())] {
        assert!(root.contains(shown), "{shown}: {root:?}");
    }
    // The control: the host has more, and programs outside see it.
    let unnamed = ["boot", "srv", "media", "mnt", "home"].iter().filter(|name| of_host.contains(**name));
    let unnamed: Vec<&str> = unnamed.copied().filter(|name| *name != first(&run.ground.scope())).collect();
    assert!(!unnamed.is_empty(), "{of_host:?}");
    assert!(unnamed.iter().all(|name| !root.contains(*name)), "{root:?} of {of_host:?}");
    let outside = run.ground.outside();
    let beside = names(&list(&outside, &["--read", named.to_str().unwrap()]).await);
    assert_eq!(beside, BTreeSet::from(["named".to_owned()]), "of {:?}", names_in(&outside));
    assert!(names_in(&outside).is_superset(&BTreeSet::from(["named".to_owned(), "other".to_owned()])));
}

/// Runs a script up to the point where it waits, lets `meanwhile` act outside, and returns what the rest of it prints.
async fn while_it_runs(run: &FencedRun, options: &[&str], script: &str, meanwhile: impl FnOnce()) -> String {
    let (started, go) = (run.in_scope("started"), run.in_scope("go"));
    let wait = "touch started; while ! test -e go; do sleep 0.01; done";
    let mut command = run.command(options, ["sh", "-c", &format!("{wait}; {script}")]);
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    wait_until("the command runs", async || started.exists()).await;
    meanwhile();
    std::fs::write(go, "").unwrap();
    let output = child.wait_with_output().await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_outside_while_a_command_runs_is_not_seen() {
    let run = tier_b().await;
    let outside = run.ground.outside();
    let (late, named) = (outside.join("late"), outside.join("named"));
    std::fs::create_dir(&named).unwrap();
    run.ground.belongs_to_caller();
    let make = || {
        for file in [late.clone(), named.join("late"), run.in_scope("late")] {
            std::fs::write(file, "made later\n").unwrap();
        }
    };
    let script = format!(
        "cat '{}' || echo unseen; cat '{}'; cat late; cat '{}/named/late' || echo unseen",
        late.display(),
        named.join("late").display(),
        outside.parent().unwrap().display()
    );
    let options = [STRICT, &["--read", named.to_str().unwrap()]].concat();
    let seen = while_it_runs(&run, &options, &script, make).await;
    // The control: in the scope, and in a directory that the policy shows, it is seen.
    assert_eq!(seen, "unseen\nmade later\nmade later\nunseen\n");
    assert_eq!(std::fs::read_to_string(&late).unwrap(), "made later\n", "it is there");
}

/// Editors write a new file and rename it over the old one, which is then another file than the one that was denied.
#[tokio::test(flavor = "multi_thread")]
async fn an_atomic_save_of_a_denied_file_outside_does_not_lift_the_denial() {
    let run = tier_b().await;
    let shown = run.ground.outside().join("shown");
    std::fs::create_dir(&shown).unwrap();
    let script = format!("for file in denied open; do cat '{}'/$file || echo refused; done", shown.display());
    let denied = shown.join("denied");
    let reading = [STRICT, &["--read", shown.to_str().unwrap()]].concat();
    let denying = [&reading[..], &["--deny-read", denied.to_str().unwrap()]].concat();
    let mut seen = Vec::new();
    for options in [denying, reading] {
        for name in ["denied", "open"] {
            std::fs::write(shown.join(name), "before\n").unwrap();
        }
        run.ground.belongs_to_caller();
        let save = || {
            for name in ["denied", "open"] {
                std::fs::write(shown.join("new"), "after\n").unwrap();
                std::fs::rename(shown.join("new"), shown.join(name)).unwrap();
            }
        };
        seen.push(while_it_runs(&run, &options, &script, save).await);
        for file in [run.in_scope("started"), run.in_scope("go")] {
            std::fs::remove_file(file).unwrap();
        }
    }
    // Beside a denied file, each file is shown by itself: as it was when the command started.
    assert_eq!(seen[0], "refused\nbefore\n");
    assert_eq!(seen[1], "after\nafter\n", "the control: without the denial, what was saved is read");
    assert_eq!(std::fs::read_to_string(denied).unwrap(), "after\n");
}
