//! Common development tools, run by `run_terminal_cmd` inside the fence.

use super::Desk;
use testkit::Project;

#[tokio::test]
async fn git_commits_branches_and_shows() {
    let project = Project::new("git");
    project.write("a.txt", "one\n");
    project.commit_all();
    project.git(&["config", "user.name", "Test"]);
    project.git(&["config", "user.email", "test@example.com"]);
    let desk = Desk::open(project).await;
    desk.run("echo two >> a.txt && git switch --quiet --create topic && git commit --quiet -am 'second'")
        .await;
    assert_eq!(desk.run("git log --oneline | wc -l").await, "2");
    assert_eq!(desk.project.git(&["log", "-1", "--format=%s", "topic"]).trim(), "second");
    assert_eq!(desk.run("git status --porcelain").await, "");
    desk.run("git worktree add --quiet ../$(basename $PWD)/tree main && ls tree/a.txt").await;
}

#[tokio::test]
async fn node_runs_scripts_and_tests() {
    let project = Project::new("node");
    project.write("sum.mjs", "export const sum = (a, b) => a + b;\n");
    let test = "import test from 'node:test';\nimport assert from 'node:assert';\n\
                import { sum } from './sum.mjs';\ntest('sum', () => assert.equal(sum(1, 2), 3));\n";
    project.write("sum.test.mjs", test);
    let desk = Desk::open(project).await;
    assert_eq!(desk.run("node -p '6 * 7'").await, "42");
    let output = desk.run("node --test sum.test.mjs").await;
    assert!(output.contains("pass 1"), "{output}");
}

#[tokio::test]
async fn python_runs_scripts_and_makes_environments() {
    let desk = Desk::empty().await;
    assert_eq!(desk.run("python3 -c 'print(6 * 7)'").await, "42");
    desk.run("python3 -m venv --without-pip venv && venv/bin/python -c 'import sys; print(sys.prefix)'")
        .await;
    assert!(desk.project.has("venv/bin/python"));
}

#[tokio::test]
async fn cargo_builds_and_tests_a_crate() {
    let project = Project::new("cargo");
    project.write(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n",
    );
    let source = "pub fn sum(a: u32, b: u32) -> u32 {\n    a + b\n}\n\n#[test]\nfn adds() {\n    \
                  assert_eq!(sum(1, 2), 3);\n}\n";
    project.write("src/lib.rs", source);
    let desk = Desk::open(project).await;
    let output = desk.run("cargo test --offline --quiet 2>&1").await;
    assert!(output.contains("1 passed"), "{output}");
    assert!(desk.project.has("target/debug"));
}

#[tokio::test]
async fn make_and_pipelines_of_the_shell_work() {
    let project = Project::new("make");
    project.write("Makefile", "all: out.txt\nout.txt: in.txt\n\ttr a-z A-Z < in.txt > out.txt\n");
    project.write("in.txt", "text\n");
    let desk = Desk::open(project).await;
    desk.run("make --silent").await;
    assert_eq!(desk.project.text("out.txt"), "TEXT\n");
    let count = desk.run("find . -type f | sort | tee files.txt | wc -l").await;
    assert!(matches!(count.as_str(), "3" | "4"), "{count}");
}
