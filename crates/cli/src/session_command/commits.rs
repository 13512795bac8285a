//! `ringfence session merge`: puts the commits of a copy on a branch of the project. Nothing is checked out, and no hook,
//! filter or setting of the copy is obeyed.
//!
//! ```text
//! copy      git pack-objects, in a fence with the copy        ─► objects, in a file that no fence shows
//! project   git index-pack --strict, in a fence with the project ─► objects, each checked as fsck does
//!           git rev-list: everything that the commit needs is there
//!           git update-ref: the branch, from what it was
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use fence::VettedDirectory;
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use staging::{Event, StartCommit, Unsaved, WorkspaceCopy, Workspaces};

use super::fenced_program::{FencedPrograms, Finished, Ground, Input};
use super::listing::{printable, without_controls};
use super::{AsJson, Occupied, SessionCommandError, project};
use crate::output::print_line;

/// The most commits that are counted and listed.
const MAX_COMMITS: &str = "1000";
/// The most commits that are printed.
const MAX_PRINTED: usize = 20;

#[derive(Debug, Args)]
pub(super) struct MergeArguments {
    /// The workspace.
    name: String,
    /// The branch of the workspace whose commits are taken. By default, what is checked out there.
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// The branch of the project that they are put on. By default, ringfence/NAME. It must not be checked out.
    #[arg(long, value_name = "BRANCH")]
    into: Option<String>,
    /// Take commits, too, that change what programs on this machine execute or obey.
    #[arg(long)]
    include_executables: bool,
    /// Replace a branch that has other commits.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: AsJson,
}

/// The git repository of a project, read by a git that can write nothing.
pub(super) struct Repository<'a> {
    pub(super) programs: &'a FencedPrograms,
    pub(super) base: &'a VettedDirectory,
}

impl Repository<'_> {
    /// What a git that can only read answers, if it succeeds.
    fn ask<'w>(
        &self,
        words: impl IntoIterator<Item = &'w (impl AsRef<OsStr> + ?Sized + 'w)>,
    ) -> Option<Finished> {
        let finished = self.programs.git(Ground::Project(self.base), words).ok()??;
        (finished.code == 0).then_some(finished)
    }

    /// The commit that a name stands for.
    pub(super) fn commit(&self, name: &str) -> Option<String> {
        let name = format!("{name}^{{commit}}");
        self.ask(["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?.line()
    }

    /// What is checked out.
    pub(super) fn head(&self) -> Option<StartCommit> {
        let told = self.ask(["rev-parse", "--revs-only", "HEAD^{commit}", "--symbolic-full-name", "HEAD"])?;
        let text = String::from_utf8(told.output).ok()?;
        let mut lines = text.lines();
        let id = lines.next().filter(|id| is_object_name(id))?.to_owned();
        let reference = lines.next().filter(|name| name.starts_with("refs/")).map(str::to_owned);
        Some(StartCommit { id, reference })
    }

    /// The content of a file of the project at a commit.
    pub(super) fn file_at(&self, commit: &str, path: &Path) -> Option<Vec<u8>> {
        let mut object = OsString::from(format!("{commit}:./"));
        object.push(path);
        self.ask([OsStr::new("cat-file"), OsStr::new("blob"), &object]).map(|finished| finished.output)
    }

    /// How many of these commits, one on each line, no ref of the project leads to.
    fn unsaved_among(&self, commits: &[u8]) -> Result<usize, SessionCommandError> {
        let ground = Ground::Project(self.base);
        let ask = |words: &[&str]| {
            let finished =
                self.programs.git_with(ground, words.iter().copied(), Input::Bytes(commits), None)?;
            finished.ok_or(SessionCommandError::NoGit)
        };
        let told = ask(&["cat-file", "--batch-check=%(objecttype)"])?.success("look for commits")?;
        let missing =
            String::from_utf8_lossy(&told).lines().filter(|line| line.ends_with(" missing")).count();
        // An earlier merge that was refused may have left objects that only wait to be removed.
        let loose = ask(&["rev-list", "--ignore-missing", "--stdin", "--not", "--all"])?;
        let loose = if loose.code == 0 { String::from_utf8_lossy(&loose.output).lines().count() } else { 1 };
        Ok(missing + loose)
    }
}

/// The commits that would be lost with a copy. None if that cannot be found out because it is no repository.
pub(super) fn unsaved(
    programs: &FencedPrograms,
    copy: &WorkspaceCopy,
) -> Result<Unsaved, SessionCommandError> {
    if copy.record().start.is_none() && !copy.record().base_path().join(".git").exists() {
        return Ok(Unsaved::default());
    }
    let occupied = Occupied::of(copy)?;
    let mut words = vec!["rev-list", "--branches", "HEAD", "--max-count", MAX_COMMITS];
    let not = copy.record().start.as_ref().map(|start| format!("^{}", start.id));
    words.extend(not.as_deref());
    let Some(finished) = programs.git(occupied.ground(), words)? else { return Ok(Unsaved::default()) };
    // Without a commit there is none to lose.
    if finished.code != 0 || finished.output.is_empty() {
        return Ok(Unsaved::default());
    }
    let repository = Repository { programs, base: &occupied.base };
    Ok(Unsaved { commits: repository.unsaved_among(&finished.output)? })
}

pub(super) fn merge(workspaces: &Workspaces, arguments: &MergeArguments) -> Result<(), SessionCommandError> {
    let copy = workspaces.find(&arguments.name)?;
    let programs = FencedPrograms::new()?;
    let into = arguments.into.clone().unwrap_or_else(|| format!("ringfence/{}", copy.name()));
    let branch = Branch::of(&programs, &copy, &into)?;
    let merge = Merge { programs: &programs, copy: &copy, start: start_of(&copy) };
    let tip = {
        let occupied = Occupied::of(&copy)?;
        let tip = merge.tip(&occupied, arguments.branch.as_deref())?;
        merge.check_new(&occupied, &tip)?;
        let objects = merge.pack(&occupied, &tip)?;
        // The copy is free again: from here on only the project's own git runs.
        drop(occupied);
        merge.unpack(&branch.base, &objects)?;
        tip
    };
    let repository = Repository { programs: &programs, base: &branch.base };
    let commits = merge.commits(&repository, &tip)?;
    if !arguments.include_executables {
        let executables = merge.executables(&repository, &tip);
        if !executables.is_empty() {
            return Err(SessionCommandError::Executables(executables));
        }
    }
    branch.set(&programs, &tip, arguments.force)?;
    copy.note(Event::Merged { commits: commits.len(), into: branch.name.clone() })?;
    report(&branch.name, &tip, &commits, arguments.output.json);
    Ok(())
}

fn report(branch: &str, tip: &str, commits: &[String], as_json: bool) {
    if as_json {
        print_line(&format!("{:#}", json!({ "branch": branch, "commit": tip, "commits": commits })));
        return;
    }
    for commit in commits.iter().take(MAX_PRINTED) {
        print_line(commit);
    }
    print_line(&format!(
        "{} on the branch {branch} now; nothing was checked out: git merge {branch}",
        counted(commits.len(), "new commit")
    ));
}

/// `1 commit`, `2 commits`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn start_of(copy: &WorkspaceCopy) -> Option<String> {
    copy.record().start.as_ref().map(|start| start.id.clone())
}

/// Whether this is the name of an object, as git writes them.
fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What travels from a copy to its project.
struct Merge<'a> {
    programs: &'a FencedPrograms,
    copy: &'a WorkspaceCopy,
    start: Option<String>,
}

impl Merge<'_> {
    /// The commit that the copy has on a branch, or has checked out.
    fn tip(&self, occupied: &Occupied, branch: Option<&str>) -> Result<String, SessionCommandError> {
        let name = branch.map_or_else(|| "HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
        let commit = format!("{name}^{{commit}}");
        let words = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        let finished = self.programs.git(occupied.ground(), words)?.ok_or(SessionCommandError::NoGit)?;
        let tip = finished.line().filter(|tip| is_object_name(tip));
        match branch {
            Some(branch) => tip.ok_or_else(|| SessionCommandError::NoCommit(branch.to_owned())),
            None => tip.ok_or(SessionCommandError::NothingToMerge),
        }
    }

    fn check_new(&self, occupied: &Occupied, tip: &str) -> Result<(), SessionCommandError> {
        let repository = Repository { programs: self.programs, base: &occupied.base };
        if repository.unsaved_among(format!("{tip}\n").as_bytes())? > 0 {
            Ok(())
        } else {
            Err(SessionCommandError::NothingToMerge)
        }
    }

    /// Has the copy's git write what the project lacks into a file without a name.
    fn pack(&self, occupied: &Occupied, tip: &str) -> Result<File, SessionCommandError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.copy.directory(), flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(std::io::Error::from)?);
        let revisions = match &self.start {
            Some(start) => format!("{tip}\n^{start}\n"),
            None => format!("{tip}\n"),
        };
        let words = ["pack-objects", "--revs", "--thin", "--stdout", "--quiet", "--delta-base-offset"];
        let input = Input::Bytes(revisions.as_bytes());
        let finished = self.programs.git_with(occupied.ground(), words, input, Some(&file))?;
        finished.ok_or(SessionCommandError::NoGit)?.success("collect the commits")?;
        file.flush()?;
        file.rewind()?;
        Ok(file)
    }

    /// Has the project's git take the objects in, after it has checked each of them.
    fn unpack(&self, base: &VettedDirectory, objects: &File) -> Result<(), SessionCommandError> {
        let words = ["index-pack", "--stdin", "--fix-thin", "--strict"];
        let ground = Ground::Repository(base);
        let finished = self.programs.git_with(ground, words, Input::File(objects), None)?;
        finished.ok_or(SessionCommandError::NoGit)?.success("accept the commits")?;
        Ok(())
    }

    /// The new commits, the newest first. Fails if anything that they need is missing.
    fn commits(&self, repository: &Repository<'_>, tip: &str) -> Result<Vec<String>, SessionCommandError> {
        let ground = Ground::Project(repository.base);
        let complete = ["rev-list", "--objects", "--quiet", tip, "--not", "--all"];
        let finished = self.programs.git(ground, complete)?.ok_or(SessionCommandError::NoGit)?;
        finished.success("find everything that the commits need")?;
        let mut words =
            vec!["log", "--no-show-signature", "--no-color", "--format=%h %s", "--max-count", MAX_COMMITS];
        let not = self.start.as_ref().map(|start| format!("^{start}"));
        words.push(tip);
        words.extend(not.as_deref());
        let finished = self.programs.git(ground, words)?.ok_or(SessionCommandError::NoGit)?;
        let lines = finished.success("list the commits")?;
        Ok(String::from_utf8_lossy(&lines).lines().map(without_controls).collect())
    }

    /// The files among those that the commits change which programs on this machine execute or obey.
    fn executables(&self, repository: &Repository<'_>, tip: &str) -> Vec<String> {
        // The empty tree, if there was no commit.
        let empty = || repository.ask(["hash-object", "-t", "tree", "/dev/null"]).and_then(Finished::line);
        let Some(from) = self.start.clone().or_else(empty) else { return vec!["(unknown)".to_owned()] };
        let words = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", &from, tip];
        let Some(finished) = repository.ask(words) else { return vec!["(unknown)".to_owned()] };
        let paths = finished.output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        paths.filter(|path| staging::is_executed_outside(path)).map(|path| printable(&path)).collect()
    }
}

/// A branch of the project that commits are put on.
struct Branch {
    base: VettedDirectory,
    /// Without `refs/heads/`.
    name: String,
    /// The commit that it had; `None` if there was no such branch.
    before: Option<String>,
}

impl Branch {
    fn of(programs: &FencedPrograms, copy: &WorkspaceCopy, name: &str) -> Result<Self, SessionCommandError> {
        let base = project(copy)?;
        let repository = Repository { programs, base: &base };
        let is_repository = programs.git(Ground::Project(&base), ["rev-parse", "--git-dir"])?;
        if is_repository.ok_or(SessionCommandError::NoGit)?.code != 0 {
            return Err(SessionCommandError::NoRepository(base.path().to_owned()));
        }
        if repository.ask(["check-ref-format", "--branch", name]).is_none() {
            return Err(SessionCommandError::BadBranch(name.to_owned()));
        }
        let reference = format!("refs/heads/{name}");
        let worktrees = repository.ask(["worktree", "list", "--porcelain"]).map(|finished| finished.output);
        let is_in_use = String::from_utf8_lossy(&worktrees.unwrap_or_default())
            .lines()
            .any(|line| line.strip_prefix("branch ") == Some(&reference));
        if is_in_use {
            return Err(SessionCommandError::BranchInUse(name.to_owned()));
        }
        let before = repository.commit(&reference);
        Ok(Self { base, name: name.to_owned(), before })
    }

    /// Moves the branch, if it still is where it was.
    fn set(&self, programs: &FencedPrograms, tip: &str, force: bool) -> Result<(), SessionCommandError> {
        let repository = Repository { programs, base: &self.base };
        if let (Some(before), false) = (&self.before, force)
            && repository.ask(["merge-base", "--is-ancestor", before, tip]).is_none()
        {
            return Err(SessionCommandError::BranchMoved(self.name.clone()));
        }
        let reference = format!("refs/heads/{}", self.name);
        // Zeros stand for a ref that must not be there.
        let before = self.before.clone().unwrap_or_else(|| "0".repeat(tip.len()));
        let words = ["update-ref", "-m", "ringfence session merge", &reference, tip, &before];
        let finished = programs.git(Ground::Repository(&self.base), words)?;
        finished.ok_or(SessionCommandError::NoGit)?.success("set the branch")?;
        Ok(())
    }
}
