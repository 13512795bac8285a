//! What a gateway's store does to its files, call by call, and what a disk that loses its power would keep of it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::{Gateway, strace, wait_until};
use tokio::process::{Child, Command};

/// A disk writes sectors whole, and several of one write in any order.
const SECTOR: usize = 512;

/// Numbers that look random and are the same in each run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A system call of the store's thread on one of its files.
#[derive(Debug)]
pub(super) struct Step {
    /// Seconds since 1970 at which it began.
    pub(super) at: f64,
    file: PathBuf,
    pub(super) act: Act,
}

#[derive(Debug)]
pub(super) enum Act {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
    Sync,
}

impl Step {
    /// Whether this is the header of the last frame of a transaction in SQLite's log: it has the size of the database in
    /// its second word.
    pub(super) fn is_commit(&self) -> bool {
        let Act::Write { bytes, .. } = &self.act else { return false };
        bytes.len() == 24 && bytes[4..8] != [0; 4]
    }

    pub(super) fn is_sync(&self) -> bool {
        matches!(self.act, Act::Sync)
    }
}

/// `strace` at the thread of a gateway that writes sessions.
pub(super) struct Recording {
    child: Child,
    log: PathBuf,
    files: HashMap<i32, PathBuf>,
    thread: PathBuf,
}

impl Recording {
    pub(super) async fn begin(gateway: &Gateway, log: PathBuf) -> Self {
        let process = PathBuf::from(format!("/proc/{}", gateway.pid()));
        let is_writer =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "store\n");
        let find = || {
            let tasks = fs::read_dir(process.join("task")).unwrap().flatten();
            tasks.map(|task| task.path()).find(is_writer)
        };
        // A thread names itself when it first runs.
        wait_until("the store has a thread", async || find().is_some()).await;
        let thread = find().expect("it was there");
        let descriptors = fs::read_dir(process.join("fd")).unwrap().flatten();
        let files = descriptors.filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let file = fs::read_link(entry.path()).ok()?;
            let is_ours = file.file_name()?.to_str()?.starts_with("sessions.db");
            is_ours.then_some((number, file))
        });
        let files: HashMap<i32, PathBuf> = files.collect();
        let words = strace();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args(["-ttt", "-xx", "-s", "1000000", "-e"]);
        command.arg("trace=write,pwrite64,lseek,ftruncate,fsync,fdatasync").arg("-o").arg(&log);
        command.arg("-p").arg(thread.file_name().unwrap());
        let child = command.stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let status = thread.join("status");
        wait_until("the store is watched", async || {
            fs::read_to_string(&status).is_ok_and(|text| !text.contains("TracerPid:\t0\n"))
        })
        .await;
        Self { child, log, files, thread }
    }

    /// Everything so far. The gateway has ended, or is let go.
    pub(super) async fn end(mut self) -> Vec<Step> {
        if self.thread.exists() {
            let pid = i32::try_from(self.child.id().unwrap()).unwrap();
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).unwrap(),
                rustix::process::Signal::INT,
            )
            .unwrap();
        }
        self.child.wait().await.unwrap();
        let text = fs::read_to_string(&self.log).unwrap();
        let mut positions = HashMap::new();
        text.lines().filter_map(|line| self.step(line, &mut positions)).collect()
    }

    fn step(&self, line: &str, positions: &mut HashMap<i32, usize>) -> Option<Step> {
        let (at, rest) = line.split_once(' ')?;
        let (call, rest) = rest.split_once('(')?;
        // A call that was cut off by the end has no result. strace puts results into one column.
        let (arguments, result) = rest.rsplit_once(')')?;
        let result = result.trim_start_matches([' ', '=']);
        let result: i64 = result.split_whitespace().next()?.parse().ok()?;
        let arguments: Vec<&str> = arguments.split(", ").collect();
        let descriptor: i32 = arguments[0].trim().parse().ok()?;
        let file = self.files.get(&descriptor)?.clone();
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let act = match call {
            "lseek" => {
                positions.insert(descriptor, usize::try_from(result).ok()?);
                return None;
            }
            "write" | "pwrite64" => {
                let mut bytes = unescaped(arguments[1]);
                bytes.truncate(usize::try_from(result).ok()?);
                let offset = match arguments.get(3) {
                    Some(offset) => number(offset)?,
                    None => positions.get(&descriptor).copied()?,
                };
                positions.insert(descriptor, offset + bytes.len());
                Act::Write { offset, bytes }
            }
            "ftruncate" => Act::Resize(number(arguments[1])?),
            _ => Act::Sync,
        };
        Some(Step { at: at.parse().ok()?, file, act })
    }
}

/// The bytes of a text such as `"\x53\x51"`.
fn unescaped(text: &str) -> Vec<u8> {
    let digits = text.trim_matches('"').split("\\x").skip(1);
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("strace writes bytes in hexadecimal")).collect()
}

/// What a disk has of some files.
#[derive(Clone, Default)]
pub(super) struct Disk {
    files: HashMap<PathBuf, FileOnDisk>,
}

#[derive(Clone, Default)]
struct FileOnDisk {
    /// What it has for certain.
    durable: Vec<u8>,
    /// What it was told since, but need not have.
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Sector { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Disk {
    /// The files of a directory, all of them safe.
    pub(super) fn of(directory: &Path) -> Self {
        let files = fs::read_dir(directory).unwrap().flatten().map(|entry| {
            (entry.path(), FileOnDisk { durable: fs::read(entry.path()).unwrap(), pending: Vec::new() })
        });
        Self { files: files.collect() }
    }

    pub(super) fn take(&mut self, step: &Step) {
        let file = self.files.entry(step.file.clone()).or_default();
        match &step.act {
            Act::Write { offset, bytes } => {
                let mut from = 0;
                while from < bytes.len() {
                    // Up to the next boundary of sectors.
                    let room = SECTOR - (offset + from) % SECTOR;
                    let until = bytes.len().min(from + room);
                    file.pending
                        .push(Pending::Sector { offset: offset + from, bytes: bytes[from..until].to_vec() });
                    from = until;
                }
            }
            Act::Resize(length) => file.pending.push(Pending::Resize(*length)),
            Act::Sync => file.settle(|| true),
        }
    }

    /// What is there when the power comes back: what was synced, and some of the rest.
    pub(super) fn lose_power(&self, dice: &mut Dice, into: &Path) {
        // All, none, or some of what was not synced.
        let kept = [0, 50, 100, dice.below(101)][usize::try_from(dice.below(4)).unwrap()];
        // As private as a gateway makes it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(into).unwrap();
        for (path, file) in &self.files {
            let mut file = file.clone();
            file.settle(|| dice.below(100) < kept);
            fs::write(into.join(path.file_name().unwrap()), &file.durable).unwrap();
        }
    }
}

impl FileOnDisk {
    fn settle(&mut self, mut is_kept: impl FnMut() -> bool) {
        for pending in std::mem::take(&mut self.pending) {
            if !is_kept() {
                continue;
            }
            match pending {
                Pending::Sector { offset, bytes } => {
                    let end = offset + bytes.len();
                    if self.durable.len() < end {
                        self.durable.resize(end, 0);
                    }
                    self.durable[offset..end].copy_from_slice(&bytes);
                }
                Pending::Resize(length) => self.durable.resize(length, 0),
            }
        }
    }
}
