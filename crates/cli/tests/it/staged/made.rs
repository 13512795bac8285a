//! Copies of every kind of checkout, for root and for a plain user, also where the host refuses an overlay.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use staging::{Method, Workspaces};

use super::{Site, open_in, shell};

/// A user without any right of its own.
const PLAIN: u32 = 65534;

/// Runs a script on the host.
fn on_host(directory: &Path, script: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(directory).env("GIT_CONFIG_NOSYSTEM", "1");
    for (name, value) in [("NAME", "H"), ("EMAIL", "h@example.org")] {
        command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A kind of checkout: how it is made, and in which directory of the project the work is.
struct Kind {
    name: &'static str,
    script: &'static str,
    base: &'static str,
    work_in: &'static str,
}

const KINDS: &[Kind] = &[
    Kind { name: "clean", script: "", base: ".", work_in: "." },
    Kind {
        name: "dirty, with changes of every kind",
        script: "echo changed > kept.txt; echo x > new.txt; echo s > staged.txt; git add staged.txt; git rm -q deleted.txt; echo x > ignored.log",
        base: ".",
        work_in: ".",
    },
    Kind { name: "sparse", script: "git sparse-checkout set --no-cone /kept.txt /work.txt", base: ".", work_in: "." },
    Kind {
        name: "with pointers of LFS",
        script: r"printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 0 > big.bin
            echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes; git add -A; git commit -qm lfs",
        base: ".",
        work_in: ".",
    },
    Kind {
        name: "a submodule",
        script: "git init -q -b main ../library; git -C ../library commit -q --allow-empty -m library
            git -c protocol.file.allow=always submodule --quiet add ../library lib 2> /dev/null || git -c protocol.file.allow=always submodule add $PWD/../library lib
            git commit -qam submodule",
        base: ".",
        work_in: "lib",
    },
    Kind { name: "a linked worktree", script: "git worktree add -q ../linked", base: "../linked", work_in: "." },
];

const PROJECT: &str =
    "git init -q -b main; echo kept > kept.txt; echo d > deleted.txt; echo '*.log' > .gitignore
    mkdir folder; echo f > folder/file; git add -A; git commit -qm start";

#[tokio::test(flavor = "multi_thread")]
async fn agents_commit_in_copies_of_every_kind_of_checkout() {
    for method in [Method::Overlay, Method::Copy] {
        for kind in KINDS {
            let site = Site::new("kinds");
            // Siblings of the project are inside what is removed at the end.
            let project = site.path().join("project");
            std::fs::create_dir(&project).unwrap();
            on_host(&project, PROJECT);
            on_host(&project, kind.script);
            let base = project.join(kind.base).canonicalize().unwrap();
            let state = |directory: &Path| {
                on_host(directory, "git status --porcelain --ignored; git for-each-ref; git rev-parse HEAD")
            };
            let before = (state(&base), state(&base.join(kind.work_in)));
            let gateway =
                site.serve().flag("--stage").flags(["--stage-method", method.as_str()]).start().await;
            let client = open_in(&gateway, &base).await;
            let at = format!("{method}, {}", kind.name);
            let status = shell(&client, "git status --porcelain --ignored").await;
            let inside: Vec<&str> = status.lines().filter(|line| !line.starts_with('[')).collect();
            let outside = on_host(&base, "git status --porcelain --ignored");
            assert_eq!(inside.join("\n").trim(), outside.trim(), "{at}: the same is shown");
            let work = format!(
                "cd {} && echo w > work.txt && git add work.txt && git -c user.name=A -c user.email=a@example.org commit -qm work -- work.txt && git log --format=%s -1",
                kind.work_in
            );
            let committed = shell(&client, &work).await;
            assert!(committed.starts_with("work"), "{at}: {committed}");
            assert_eq!(
                (state(&base), state(&base.join(kind.work_in))),
                before,
                "{at}: the project is as it was"
            );
            let copy = site.copies().remove(0);
            assert_eq!(copy.record().method, method, "{at}");
            let changes = copy.changes(&staging::ChangeOptions::default()).unwrap();
            let paths: Vec<&Path> = changes.entries.iter().map(|change| change.path.as_path()).collect();
            assert_eq!(
                paths,
                [Path::new(kind.work_in)
                    .join("work.txt")
                    .strip_prefix(".")
                    .unwrap_or(&Path::new(kind.work_in).join("work.txt"))],
                "{at}"
            );
        }
    }
}

/// Gives everything below a directory to the plain user.
fn give(directory: &Path) {
    let given =
        Command::new("chown").args(["-R", &format!("{PLAIN}:{PLAIN}")]).arg(directory).status().unwrap();
    assert!(given.success(), "the tests of fences run as root, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_user_gets_an_overlay_and_takes_over_what_was_done_in_it() {
    let site = Site::new("plain-user");
    site.project.write("deleted.txt", "x");
    site.project.write("deep/file.txt", "x");
    for directory in [site.path(), site.state.path()] {
        give(directory);
    }
    let gateway = site
        .serve()
        .flag("--stage")
        .flag("--allow-apply")
        .user(PLAIN)
        .flags(["--allow-uid", "0"])
        .env("HOME", site.state.path())
        .start()
        .await;
    let client = open_in(&gateway, site.path()).await;
    let output = shell(
        &client,
        "echo changed > kept.txt; rm deleted.txt; rm -r deep; mkdir deep; echo new > deep/other.txt; chmod 700 kept.txt; ls; id -u",
    )
    .await;
    assert!(output.contains(&PLAIN.to_string()), "{output}");
    assert!(site.project.has("deleted.txt") && site.project.text("kept.txt") == "from the project\n");
    let (status, applied) = super::at_session(&client, "POST", "apply", None).await;
    assert_eq!(status, 200, "{applied}");
    assert_eq!(site.project.text("kept.txt"), "changed\n");
    assert!(!site.project.has("deleted.txt") && !site.project.has("deep/file.txt"));
    assert_eq!(site.project.text("deep/other.txt"), "new\n");
    let root = site.state.join("ringfence/workspaces");
    let record = std::fs::read_dir(root)
        .unwrap()
        .flatten()
        .find_map(|entry| std::fs::read_to_string(entry.path().join("record.json")).ok());
    assert!(record.is_some_and(|record| record.contains("\"method\":\"overlay\"")), "rootless");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_host_refuses_an_overlay_the_files_are_copied_and_the_copy_says_so() {
    let site = Site::new("refused-overlay");
    // The kernel takes no overlay as the upper layer of another.
    let [lower, upper, work, state]: [PathBuf; 4] =
        ["lower", "upper", "work", "state"].map(|name| site.state.join(name));
    for directory in [&lower, &upper, &work, &state] {
        std::fs::create_dir(directory).unwrap();
    }
    let mount = format!(
        "mount -t overlay overlay -o lowerdir={},upperdir={},workdir={},userxattr {}; exec \"$@\"",
        lower.display(),
        upper.display(),
        work.display(),
        state.display()
    );
    let under: Vec<OsString> = ["unshare", "-m", "sh", "-euc", &mount, "sh"].map(OsString::from).into();
    let serve = || {
        testkit::Gateway::built_in()
            .under(under.clone())
            .env("XDG_STATE_HOME", &state)
            .flag("--no-default-scope")
    };
    let gateway = serve().flag("--stage").start().await;
    let client = open_in(&gateway, site.path()).await;
    shell(&client, "echo changed > kept.txt").await;
    assert!(shell(&client, "cat kept.txt").await.starts_with("changed"));
    assert_eq!(site.project.text("kept.txt"), "from the project\n");
    let copies = Workspaces::open(&upper.join("ringfence/workspaces")).unwrap();
    let copy = copies.list().unwrap().remove(0).unwrap();
    assert_eq!(copy.record().method, Method::Copy);
    assert!(copies.trash().unwrap().is_empty(), "what was tried before leaves nothing");
    // Where an overlay is insisted on, the answer says why there is none.
    let gateway = serve().flag("--stage").flags(["--stage-method", "overlay"]).start().await;
    let mut insisting = gateway.client();
    insisting.open(serde_json::json!({"roots": {}}), testkit::NEWEST).await;
    let answer = insisting
        .call_tool_answering("session_info", serde_json::json!({}), |_| Ok(testkit::roots(&[site.path()])))
        .await;
    let text = answer.response.to_string();
    assert!(text.contains("overlay"), "{text}");
}
