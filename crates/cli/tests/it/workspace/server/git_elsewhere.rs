//! git where the workspace is not the top of a repository: linked worktrees, submodules, folders, git directories
//! elsewhere. Commits work, hooks and configuration stay as they are, and no file of the workspace can choose another
//! repository. Each attack succeeds where the operator allows it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use testkit::{Gateway, GatewayBuilder, Project, WorkspaceDir, workspace_dir};

use super::{Outcome, Session};

/// A gateway that is started in a directory, with a session there and a home of its own.
struct Place {
    gateway: Gateway,
    session: Session,
    /// Removed with it, unless the test keeps its own.
    _home: Option<WorkspaceDir>,
}

impl Place {
    async fn open(directory: &Path, flags: &[&str]) -> Self {
        let home = workspace_dir("git-home");
        let place = Self::with_home(directory, home.path(), flags).await;
        Self { _home: Some(home), ..place }
    }

    /// The home has git settings that name an author.
    async fn with_home(directory: &Path, home: &Path, flags: &[&str]) -> Self {
        std::fs::create_dir_all(home).unwrap();
        if !home.join(".gitconfig").exists() {
            std::fs::write(home.join(".gitconfig"), AUTHOR).unwrap();
        }
        Self::start(Gateway::built_in().flags(flags), directory, home).await
    }

    /// With the servers of a configuration file.
    async fn configured(directory: &Path, file: &Path, home: &Path) -> Self {
        std::fs::write(home.join(".gitconfig"), AUTHOR).unwrap();
        Self::start(Gateway::without_command().flag("--config").flag(file), directory, home).await
    }

    async fn start(builder: GatewayBuilder, directory: &Path, home: &Path) -> Self {
        let gateway = builder.current_dir(directory).env("HOME", home).start().await;
        let session = Session::open(&gateway).await;
        Self { gateway, session, _home: None }
    }

    async fn run(&self, script: &str) -> String {
        self.session.run(script).await
    }

    /// The command fails, and its result names the git directory and the option that lets it in.
    async fn is_told_of(&self, script: &str, directory: &Path) {
        let ended = self.fails(script).await;
        let note = ended.text.lines().find(|line| line.starts_with("[ringfence: ")).unwrap_or_default();
        let remedy = format!("--git-directory {}]", directory.display());
        assert!(note.contains("outside the fence") && note.ends_with(&remedy), "{script}: {}", ended.text);
    }

    async fn fails(&self, script: &str) -> Outcome {
        let ended = self.session.run_to_end(script).await;
        assert_ne!(ended.data["exit_code"], 0, "{script}: {}", ended.text);
        ended
    }
}

const AUTHOR: &str = "[user]\n\tname = Ada\n\temail = ada@example.org\n";

/// A repository with two folders, an ignored secret, and room beside it.
struct Ground {
    base: Project,
}

impl Ground {
    fn new(name: &str) -> Self {
        let base = Project::new(name);
        for (path, text) in [
            ("main/app/code.txt", "code\n"),
            ("main/lib/code.txt", "library\n"),
            ("main/lib/.gitignore", "generated\n"),
            ("main/.gitignore", ".env\n"),
            ("main/.env", "KEY=secret\n"),
            ("main/lib/.env", "KEY=secret\n"),
            ("main/lib/generated", "x\n"),
        ] {
            base.write(path, text);
        }
        let ground = Self { base };
        ground.git("main", &["init", "--quiet", "--initial-branch", "main"]);
        ground.git("main", &["add", "--all"]);
        ground.git("main", &["commit", "--quiet", "--message", "first"]);
        ground
    }

    fn path(&self, below: &str) -> PathBuf {
        self.base.join(below)
    }

    fn git(&self, directory: &str, arguments: &[&str]) -> String {
        let directory = self.path(directory);
        let directory = directory.to_str().unwrap();
        let local = ["-C", directory, "-c", "protocol.file.allow=always"];
        self.base.git(&[&local[..], arguments].concat())
    }

    fn subjects(&self, directory: &str, reference: &str) -> String {
        self.git(directory, &["log", "--format=%s", reference])
    }

    fn worktree(&self) -> PathBuf {
        self.git("main", &["worktree", "add", "--quiet", "../tree"]);
        self.path("tree")
    }
}

#[tokio::test]
async fn a_linked_worktree_commits_branches_and_stashes() {
    let ground = Ground::new("worktree");
    let place = Place::open(&ground.worktree(), &[]).await;
    assert_eq!(place.run("git status --porcelain").await, "");
    place
        .run(
            "set -e
             echo more >> app/code.txt && git commit -qam second
             git checkout -qb topic && echo topic > topic.txt && git add . && git commit -qm topic
             git checkout -q tree && git merge -q topic
             echo dirty >> app/code.txt && git stash -q && git stash pop -q && git commit -qam third
             git tag -m tag v1 && git gc -q",
        )
        .await;
    assert_eq!(ground.subjects("main", "tree"), "third\ntopic\nsecond\nfirst\n");
    assert_eq!(ground.git("main", &["log", "-1", "--format=%an", "tree"]), "Ada\n");
    ground.git("main", &["fsck", "--strict"]);
    let files = place.run("ls -A ../main").await;
    assert_eq!(files, ".git", "the main tree is not shown");
    let diff = place.session.ok("session_diff", json!({})).await;
    assert!(!diff.is_error(), "{}", diff.text);
}

#[tokio::test]
async fn a_submodule_commits_in_its_own_repository_alone() {
    let ground = Ground::new("submodule");
    let url = ground.path("main");
    ground.base.write("super/readme", "x\n");
    ground.git("super", &["init", "--quiet"]);
    ground.git("super", &["submodule", "--quiet", "add", url.to_str().unwrap(), "sub"]);
    let place = Place::open(&ground.path("super/sub"), &[]).await;
    place.run("echo more >> app/code.txt && git commit -qam second && git log --format=%s").await;
    assert_eq!(ground.subjects("super/sub", "HEAD"), "second\nfirst\n");
    assert_eq!(place.run("ls -A ../.git").await, "modules", "nothing else of the repository around it");
    place.fails("echo x > ../.git/modules/sub/hooks/pre-commit").await;
    place.fails("git config core.worktree /").await;
}

#[tokio::test]
async fn a_folder_of_a_repository_commits_and_the_rest_can_neither_be_changed_nor_read() {
    let ground = Ground::new("folder");
    let place = Place::open(&ground.path("main/app"), &[]).await;
    assert_eq!(place.run("git status --porcelain").await, "", "nothing counts as deleted");
    place.run("echo more >> code.txt && echo new > new.txt && git add --all && git commit -qm second").await;
    assert_eq!(ground.subjects("main", "HEAD"), "second\nfirst\n");
    let changed = ground.git("main", &["diff", "--name-status", "HEAD~1"]);
    assert_eq!(changed, "M\tapp/code.txt\nA\tapp/new.txt\n");
    for script in [
        "cat ../.env",
        "cat ../lib/.env",
        "cp ../lib/.env .",
        "echo x > ../lib/code.txt",
        "rm ../lib/code.txt",
        "mv ../lib ../moved",
        "echo x > ../new",
        "git rm -q ../lib/code.txt",
        "ln ../lib/.env linked && cat linked",
    ] {
        place.fails(script).await;
    }
    assert_eq!(std::fs::read_to_string(ground.path("main/lib/code.txt")).unwrap(), "library\n");
    assert_eq!(ground.git("main", &["status", "--porcelain"]), "");
    // The control: the same can be read and written where the whole repository is the workspace.
    let whole = Place::open(&ground.path("main"), &[]).await;
    assert_eq!(whole.run("cat lib/.env && echo x >> lib/code.txt").await, "KEY=secret");
}

#[tokio::test]
async fn a_folder_of_a_worktree_commits_too() {
    let ground = Ground::new("folder-of-worktree");
    let place = Place::open(&ground.worktree().join("lib"), &[]).await;
    place
        .run("echo more >> code.txt && git commit -qam second && test -z \"$(git status --porcelain)\"")
        .await;
    assert_eq!(ground.subjects("main", "tree"), "second\nfirst\n");
}

#[tokio::test]
async fn an_untracked_folder_is_not_taken_for_a_part_of_the_repository_around_it() {
    let ground = Ground::new("untracked");
    ground.base.write("main/generated/app/x", "x\n");
    let place = Place::open(&ground.path("main/generated/app"), &[]).await;
    let named = ground.path("main/.git");
    place.is_told_of("git log", &named).await;
    place.gateway.wait_for_log("--git-directory").await;
    let flags = ["--git-directory", named.to_str().unwrap()];
    let place = Place::open(&ground.path("main/generated/app"), &flags).await;
    place.run("git add x && git commit -qm second").await;
    assert_eq!(ground.subjects("main", "HEAD"), "second\nfirst\n");
}

#[tokio::test]
async fn a_git_directory_elsewhere_is_used_if_the_operator_names_it() {
    let ground = Ground::new("separate");
    ground.git("main", &["init", "--quiet", "--separate-git-dir", "../data.git"]);
    let main = ground.path("main");
    let place = Place::open(&main, &[]).await;
    let data = ground.path("data.git");
    place.is_told_of("git log", &data).await;
    let warning = place.gateway.wait_for_log("--git-directory").await;
    assert!(warning.contains("data.git"), "{warning}");
    let place = Place::open(&main, &["--git-directory", data.to_str().unwrap()]).await;
    place.run("echo more >> app/code.txt && git commit -qam second").await;
    place.fails("echo x > ../data.git/hooks/pre-commit").await;
    assert_eq!(ground.subjects("main", "HEAD"), "second\nfirst\n");
}

/// A configuration with the built-in server alone, whose fence takes these git directories in.
fn write_configuration(file: &Path, git_directories: &[&Path]) {
    let fence = json!({"gitDirectories": git_directories});
    let files = json!({"command": ["ringfence", "workspace", "--structured"], "fence": fence});
    let new = file.with_extension("new");
    std::fs::write(&new, json!({"names": "none", "servers": {"files": files}}).to_string()).unwrap();
    std::fs::rename(new, file).unwrap();
}

#[tokio::test]
async fn a_configuration_names_git_directories_and_a_reload_takes_no_further_ones_in() {
    let ground = Ground::new("configured");
    ground.git("main", &["init", "--quiet", "--separate-git-dir", "../data.git"]);
    let (main, data, file) = (ground.path("main"), ground.path("data.git"), ground.path("servers.yaml"));
    let home = workspace_dir("configured-home");
    write_configuration(&file, &[]);
    let place = Place::configured(&main, &file, home.path()).await;
    place.fails("git log").await;

    write_configuration(&file, &[&data]);
    let refused = place.gateway.wait_for_log("only a start may do").await;
    assert!(refused.contains("gitDirectories"), "{refused}");
    let later = Session::open(&place.gateway).await;
    assert_ne!(later.run_to_end("git log").await.data["exit_code"], 0);

    let place = Place::configured(&main, &file, home.path()).await;
    place.run("echo more >> app/code.txt && git commit -qam second").await;
    place.fails("echo x > ../data.git/hooks/pre-commit").await;
    assert_eq!(ground.subjects("main", "refs/heads/main"), "second\nfirst\n");

    // Those that lead back to the workspace can be left outside too.
    let tree = ground.worktree();
    write_configuration(&file, &[]);
    Place::configured(&tree, &file, home.path()).await.run("git log").await;
    write_configuration(&file, &[Path::new("none")]);
    Place::configured(&tree, &file, home.path()).await.fails("git log").await;
}

#[tokio::test]
async fn a_sibling_takes_a_push_if_the_operator_names_it_and_keeps_its_hooks() {
    let ground = Ground::new("push");
    ground.git(".", &["clone", "--quiet", "--bare", "main", "origin.git"]);
    ground.git("main", &["remote", "add", "origin", "../origin.git"]);
    let main = ground.path("main");
    let place = Place::open(&main, &[]).await;
    let origin = ground.path("origin.git");
    place.is_told_of("git push -q origin HEAD:pushed", &origin).await;
    // What is missing for another reason is not blamed on the fence.
    let unknown = place.fails("git push -q elsewhere HEAD:pushed").await;
    assert!(!unknown.text.contains("ringfence"), "{}", unknown.text);
    let place = Place::open(&main, &["--git-directory", origin.to_str().unwrap()]).await;
    place.run("echo more >> app/code.txt && git commit -qam second && git push -q origin HEAD:pushed").await;
    assert_eq!(ground.subjects("origin.git", "pushed"), "second\nfirst\n");
    place.fails("echo x > ../origin.git/hooks/post-receive").await;
    place.run("git fetch -q origin && git rev-parse -q --verify origin/pushed").await;
}

#[tokio::test]
async fn none_leaves_them_outside() {
    let ground = Ground::new("none");
    let place = Place::open(&ground.worktree(), &["--git-directory", "none"]).await;
    place.is_told_of("git log", &ground.path("main/.git")).await;
    place.run("test ! -e ../main").await;
}

#[tokio::test]
async fn a_git_directory_of_the_variable_is_used_if_the_operator_names_it() {
    let ground = Ground::new("variable");
    ground.git(".", &["clone", "--quiet", "--bare", "main", "data.git"]);
    ground.base.write("tree/app/code.txt", "code\n");
    let (tree, data) = (ground.path("tree"), ground.path("data.git"));
    let git = format!("export GIT_DIR='{}' GIT_WORK_TREE=\"$PWD\";", data.display());
    let place = Place::open(&tree, &[]).await;
    place.is_told_of(&format!("{git} git log"), &data).await;

    let place = Place::open(&tree, &["--git-directory", data.to_str().unwrap()]).await;
    assert_eq!(place.run(&format!("{git} git log --format=%s")).await, "first");
    place.run(&format!("{git} echo more >> app/code.txt && git commit -qm second app/code.txt")).await;
    assert_eq!(ground.subjects("data.git", "main"), "second\nfirst\n");
    place.fails("echo x > ../data.git/hooks/pre-commit").await;
}

/// Makes the `.git` of a workspace lead to a repository that knows nothing of it, as a session could have done where
/// `.git` was not kept.
fn forge(ground: &Ground, forgery: &str) -> PathBuf {
    let workspace = ground.path("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let git = |below: &str| ground.path("main/.git").join(below).display().to_string();
    match forgery {
        "file" => std::fs::write(workspace.join(".git"), format!("gitdir: {}\n", git(""))).unwrap(),
        "worktree of another" => {
            ground.worktree();
            std::fs::write(workspace.join(".git"), format!("gitdir: {}\n", git("worktrees/tree"))).unwrap();
        }
        "link" => std::os::unix::fs::symlink(git(""), workspace.join(".git")).unwrap(),
        "own directory that names the other as common" => {
            std::fs::create_dir_all(workspace.join("own/worktrees/x")).unwrap();
            std::fs::write(workspace.join(".git"), "gitdir: own/worktrees/x\n").unwrap();
            std::fs::write(workspace.join("own/worktrees/x/HEAD"), "ref: refs/heads/main\n").unwrap();
            std::fs::write(
                workspace.join("own/worktrees/x/gitdir"),
                workspace.join(".git").to_str().unwrap(),
            )
            .unwrap();
            std::fs::write(workspace.join("own/worktrees/x/commondir"), git("")).unwrap();
        }
        _ => unreachable!("{forgery}"),
    }
    workspace
}

#[tokio::test]
async fn no_file_of_a_workspace_chooses_a_repository() {
    for forgery in ["file", "worktree of another", "link", "own directory that names the other as common"] {
        let ground = Ground::new("forged");
        let workspace = forge(&ground, forgery);
        let place = Place::open(&workspace, &[]).await;
        place.fails("git log").await;
        place.fails("ls ../main/.git").await;
        // The control: the operator can choose it.
        let named = ground.path("main/.git");
        let place = Place::open(&workspace, &["--git-directory", named.to_str().unwrap()]).await;
        assert!(place.run("git log --format=%s").await.contains("first"), "{forgery}");
    }
}

/// What a session in a worktree does to have git execute a program for another user of the repository.
const ATTACKS: [(&str, &str); 6] = [
    ("hook", "printf '#!/bin/sh\\ntouch MARK\\n' > GIT/hooks/post-commit; chmod +x GIT/hooks/post-commit"),
    (
        "hooks replaced",
        "mv GIT/hooks GIT/h; mkdir GIT/hooks; printf '#!/bin/sh\\ntouch MARK\\n' > GIT/hooks/post-commit;
                        chmod +x GIT/hooks/post-commit",
    ),
    ("configuration", "git config -f GIT/config core.fsmonitor 'touch MARK;:'"),
    (
        "configuration replaced",
        "cp GIT/config c; git config -f c core.fsmonitor 'touch MARK;:'; mv -f c GIT/config",
    ),
    (
        "common directory",
        "cp -r GIT evil; git config -f evil/config core.fsmonitor 'touch MARK;:'; echo \"$PWD/evil\" > GIT/commondir",
    ),
    (
        "attributes and filter",
        "mkdir -p GIT/info; echo '* filter=x' > GIT/info/attributes;
                        git config -f GIT/config filter.x.clean 'touch MARK;cat'",
    ),
];

async fn runs_outside(attack: &str, flags: impl Fn(&Ground) -> Vec<String>) -> bool {
    let ground = Ground::new("worktree-attack");
    let marks = workspace_dir("worktree-marks");
    let mark = marks.as_ref().join("mark");
    let git = ground.path("main/.git");
    let script = attack.replace("MARK", mark.to_str().unwrap()).replace("GIT", git.to_str().unwrap());
    let tree = ground.worktree();
    let flags = flags(&ground);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let place = Place::open(&tree, &flags).await;
    place.session.run_to_end(&script).await;
    assert!(!mark.exists(), "{attack}: made from inside");
    let used = "echo x >> app/code.txt; git status; git add --all; git commit -q --allow-empty -m x";
    let home = workspace_dir("home-outside");
    let used = Command::new("sh")
        .args(["-c", used])
        .current_dir(ground.path("main"))
        .env("HOME", home.as_ref())
        .env("GIT_AUTHOR_NAME", "x")
        .env("GIT_AUTHOR_EMAIL", "x@example.org")
        .env("GIT_COMMITTER_NAME", "x")
        .env("GIT_COMMITTER_EMAIL", "x@example.org")
        .output()
        .unwrap();
    assert!(used.status.code().is_some());
    mark.exists()
}

#[tokio::test]
async fn git_outside_executes_nothing_that_a_session_of_a_worktree_wrote() {
    for (name, attack) in ATTACKS {
        assert!(!runs_outside(attack, |_| Vec::new()).await, "{name}");
    }
}

/// The control: the attacks are real.
#[tokio::test]
async fn each_attack_of_a_worktree_succeeds_where_the_repository_may_be_written() {
    for (name, attack) in ATTACKS {
        let writable = |ground: &Ground| {
            let git = ground.path("main/.git").display().to_string();
            ["--git-directory", "none", "--write", &git].map(str::to_owned).to_vec()
        };
        assert!(runs_outside(attack, writable).await, "{name}");
    }
}

#[tokio::test]
async fn hooks_that_a_shared_configuration_names_in_the_worktree_are_kept() {
    let ground = Ground::new("worktree-hooks");
    ground.git("main", &["config", "core.hooksPath", "app"]);
    let place = Place::open(&ground.worktree(), &[]).await;
    place.fails("echo x > app/pre-commit").await;
    place.run("echo x > lib/pre-commit").await;
}

#[tokio::test]
async fn a_signature_that_the_user_asks_for_is_made_or_refused_in_words() {
    let ground = Ground::new("signing");
    let home = workspace_dir("signing-home");
    let key = home.path().join(".ssh/key");
    std::fs::create_dir_all(key.parent().unwrap()).unwrap();
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    for (format, signing_key) in [("openpgp", "0123456789ABCDEF"), ("ssh", "~/.ssh/key")] {
        let settings = format!(
            "{AUTHOR}\tsigningkey = {signing_key}\n[gpg]\n\tformat = {format}\n[commit]\n\tgpgsign = true\n"
        );
        std::fs::write(home.path().join(".gitconfig"), settings).unwrap();
        let place = Place::with_home(&ground.path("main"), home.path(), &[]).await;
        let refused = place.fails("git commit --allow-empty -m signed").await;
        for words in ["ringfence", "signing key", "hint: "] {
            assert!(refused.text.contains(words), "{format}: {}", refused.text);
        }
        place.run("git commit -q --allow-empty --no-gpg-sign -m unsigned").await;
    }
    assert_eq!(ground.subjects("main", "HEAD"), "unsigned\nunsigned\nfirst\n");
    let public = key.with_extension("pub");
    let read = ["--read", key.to_str().unwrap(), "--read", public.to_str().unwrap()];
    let place = Place::with_home(&ground.path("main"), home.path(), &read).await;
    place.run("git commit -q --allow-empty -m signed").await;
    assert!(ground.git("main", &["cat-file", "commit", "HEAD"]).contains("BEGIN SSH SIGNATURE"));
}

#[tokio::test]
async fn aliases_of_the_user_work_inside_and_programs_of_the_settings_do_not_come_along() {
    let ground = Ground::new("aliases");
    let home = workspace_dir("alias-home");
    let settings = format!("{AUTHOR}[alias]\n\tlast = log -1 --format=%s\n[core]\n\tpager = evil\n");
    std::fs::write(home.path().join(".gitconfig"), settings).unwrap();
    let place = Place::with_home(&ground.path("main"), home.path(), &[]).await;
    assert_eq!(place.run("git last").await, "first");
    place.fails("git config --get core.pager").await;
}
