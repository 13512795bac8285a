//! Session workspaces: what making one costs against `git worktree add`, reading in it against reading outside, what an
//! unchanged one takes on the disk, and an apply against copying the same files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::json;
use staging::{ApplyRequest, Method, NewCopy, Tree, Unsaved, WorkspaceCopy, Workspaces};

use crate::command_line::CommandLine;
use crate::error::{Error, WhileDoing};
use crate::machine::Machine;
use crate::programs;
use crate::report::write_json;
use crate::statistics::{median, ratios_per_round};

const DIRECTORIES: usize = 500;
const FILES_IN_EACH: usize = 100;
const CHANGED: usize = 1000;
/// A source file of middle length.
const LINE: &str = "    let answer = compute(argument, 42); // a line like many others\n";
const LINES: usize = 30;
/// `--quick` has so many files less.
const QUICK_PART: usize = 20;

/// Milliseconds of each round.
#[derive(Debug, Default)]
struct Times {
    start: Vec<Option<f64>>,
    worktree: Vec<Option<f64>>,
    read_inside: Vec<Option<f64>>,
    read_outside: Vec<Option<f64>>,
    grep_inside: Vec<Option<f64>>,
    grep_outside: Vec<Option<f64>>,
    apply: Vec<Option<f64>>,
    cp: Vec<Option<f64>>,
    /// Of an unchanged workspace.
    disk_bytes: u64,
}

struct Ground {
    project: PathBuf,
    /// Gets by `cp` what the project gets by an apply.
    copied: PathBuf,
    worktree: PathBuf,
    workspaces: Workspaces,
    directories: usize,
}

/// Measures, prints the report and writes the results.
pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    let programs = programs::build_and_locate()?;
    let directories = if command_line.quick { DIRECTORIES / QUICK_PART } else { DIRECTORIES };
    let ground = Ground::make(&programs.work_directory.join("workspaces"), directories)?;
    let mut times = Times::default();
    for _ in 0..command_line.rounds() {
        ground.measure_round(&mut times)?;
    }
    println!("{}", markdown(&times, &Machine::read(), command_line.rounds(), directories));
    write_json(&command_line.json_file(&programs, "workspaces-results.json"), &as_json(&times))
}

impl Ground {
    fn make(top: &Path, directories: usize) -> Result<Self, Error> {
        if top.exists() {
            std::fs::remove_dir_all(top).while_doing("removing the last run")?;
        }
        let (project, copied, worktree) = (top.join("project"), top.join("copied"), top.join("worktree"));
        let content = LINE.repeat(LINES);
        for directory in 0..directories {
            let directory = project.join(format!("directory{directory}"));
            std::fs::create_dir_all(&directory)?;
            for file in 0..FILES_IN_EACH {
                let text = format!("// file {file} of {}\n{content}", directory.display());
                std::fs::write(directory.join(format!("file{file}.rs")), text)?;
            }
        }
        let commit = "git init -q -b main && git add -A && git -c gc.auto=0 -c maintenance.auto=false -c user.name=B -c user.email=b@example.org commit -qm start && git gc -q";
        shell(&project, commit)?;
        std::fs::create_dir(&copied)?;
        let workspaces = Workspaces::open(&top.join("state")).while_doing("opening the state root")?;
        // Nothing of what was made above is to be written while the rounds are measured.
        shell(top, "sync")?;
        Ok(Self { project, copied, worktree, workspaces, directories })
    }

    fn measure_round(&self, times: &mut Times) -> Result<(), Error> {
        let name = self.worktree.display().to_string();
        let worktree = timed(|| shell(&self.project, &format!("git worktree add -q --detach '{name}'")))?;
        times.worktree.push(Some(worktree));
        shell(&self.project, &format!("git worktree remove --force '{name}'"))?;
        let mut made = None;
        times.start.push(Some(timed(|| {
            let copy = self.workspaces.create(NewCopy::of(&self.project, Method::Overlay));
            made = Some(copy.while_doing("making a workspace")?);
            // The mount is part of the start.
            inside(made.as_ref(), "true").map(|_| ())
        })?));
        let copy = made.ok_or_else(|| Error::new("no workspace was made"))?;
        times.disk_bytes = copy.disk_use().while_doing("measuring a workspace")?;
        for (command, outside_times, inside_times) in [
            ("cat directory*/*.rs > /dev/null", &mut times.read_outside, &mut times.read_inside),
            ("grep -r 'file 7 of nowhere' . || true", &mut times.grep_outside, &mut times.grep_inside),
        ] {
            let clocked = format!("{command}; a=$(date +%s%N); {command}; echo $(($(date +%s%N) - a))");
            outside_times.push(Some(nanoseconds(&shell(&self.project, &clocked)?)?));
            inside_times.push(Some(nanoseconds(&inside(Some(&copy), &clocked)?)?));
        }
        self.measure_apply(&copy, times)?;
        let trashed = self.workspaces.discard(copy, Unsaved::default(), true).while_doing("discarding")?;
        self.workspaces.delete(&trashed).while_doing("deleting")
    }

    fn measure_apply(&self, copy: &WorkspaceCopy, times: &mut Times) -> Result<(), Error> {
        let each = CHANGED.div_ceil(self.directories).min(FILES_IN_EACH);
        let change = format!(
            "for f in directory*/file[0-9]*.rs; do n=${{f##*file}}; [ ${{n%.rs}} -lt {each} ] && echo changed >> $f || true; done"
        );
        inside(Some(copy), &change)?;
        let [Tree::Overlay { upper, .. }, ..] = copy.trees() else { return Err(Error::new("no overlay")) };
        shell(&self.copied, "rm -rf ./* && sync")?;
        // `cp` answers before the disk has anything, an apply only afterwards: both are measured as they are, with
        // the sync of the copied files.
        let script = format!("cp -a '{}/.' . && sync -f .", upper.display());
        times.cp.push(Some(timed(|| shell(&self.copied, &script).map(|_| ()))?));
        times.apply.push(Some(timed(|| {
            let applied = copy.apply(&ApplyRequest::default(), &|_| None).while_doing("applying")?;
            let expected = each * self.directories;
            if applied.paths.len() == expected { Ok(()) } else { Err(Error::new("other files were applied")) }
        })?));
        copy.undo().while_doing("undoing")?;
        Ok(())
    }
}

/// Milliseconds that something takes.
fn timed<T>(act: impl FnOnce() -> Result<T, Error>) -> Result<f64, Error> {
    let started = Instant::now();
    act()?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

fn nanoseconds(text: &str) -> Result<f64, Error> {
    let number: f64 = text.lines().last().unwrap_or_default().trim().parse().while_doing("reading a time")?;
    Ok(number / 1e6)
}

fn shell(directory: &Path, script: &str) -> Result<String, Error> {
    output(Command::new("sh").args(["-euc", script]).current_dir(directory))
}

/// Runs a script where the overlay is mounted, as a fence mounts it.
fn inside(copy: Option<&WorkspaceCopy>, script: &str) -> Result<String, Error> {
    let Some([Tree::Overlay { base, upper, work }, ..]) = copy.map(WorkspaceCopy::trees) else {
        return Err(Error::new("no overlay"));
    };
    let mount =
        "mount -t overlay overlay -o \"lowerdir=$1,upperdir=$2,workdir=$3,userxattr\" \"$1\"; cd \"$1\"";
    let script = format!("{mount}\n{script}");
    let mut command = Command::new("unshare");
    output(command.args(["-Urm", "sh", "-euc", &script, "sh"]).args([base, upper, work]))
}

fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.output().while_doing("starting a shell")?;
    if !output.status.success() {
        return Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A figure: its name, what is compared with what, and its bound.
type Compared<'a> = (&'static str, &'a Vec<Option<f64>>, &'a Vec<Option<f64>>, f64);

fn ratios(times: &Times) -> [Compared<'_>; 4] {
    [
        ("start on overlay / `git worktree add`", &times.start, &times.worktree, 0.3),
        ("read all files inside / outside", &times.read_inside, &times.read_outside, 1.15),
        ("`grep -r` inside / outside", &times.grep_inside, &times.grep_outside, 1.15),
        ("apply / `cp -a` and sync", &times.apply, &times.cp, 3.0),
    ]
}

fn markdown(times: &Times, machine: &Machine, rounds: u32, directories: usize) -> String {
    let Machine { date, kernel, processor, cores } = machine;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let files = directories * FILES_IN_EACH;
    let mut text = format!(
        "{date}, Linux {kernel}, {cores} cores ({processor}), load {load}: {files} files, median of {rounds} interleaved rounds.\n\n\
         | figure | bound | measured | ms | against ms | met |\n|---|--:|--:|--:|--:|---|\n"
    );
    for (name, above, below, bound) in ratios(times) {
        let of = |side: &[Option<f64>]| {
            median(&side.iter().flatten().copied().collect::<Vec<_>>()).unwrap_or_default()
        };
        let ratio = median(&ratios_per_round(above, below)).unwrap_or_default();
        let met = if ratio <= bound { "yes" } else { "no" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {name} | ≤ {bound} | {ratio:.2} | {:.0} | {:.0} | {met} |",
            of(above),
            of(below)
        );
    }
    let kibibytes = times.disk_bytes / 1024;
    let met = if kibibytes <= 1024 { "yes" } else { "no" };
    text + &format!("| KiB on the disk, unchanged workspace | ≤ 1024 | {kibibytes} | | | {met} |\n")
}

fn as_json(times: &Times) -> serde_json::Value {
    let ratios = ratios(times).map(|(name, above, below, bound)| {
        json!({"figure": name, "bound": bound, "ratios": ratios_per_round(above, below), "ms": above, "against_ms": below})
    });
    json!({"ratios": ratios, "disk_bytes": times.disk_bytes})
}
