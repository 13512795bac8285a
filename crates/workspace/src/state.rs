//! What outlives this process: the originals of changed files, what is known of commands, the snapshot from before the
//! first command. It is kept in the state files of the session, which a gateway passes as open files: no path leads to
//! them inside the fence, so the session's commands can neither read nor write them.
//!
//! A later server of the session reads them again. Whatever is in them may be forged, because this process may have been
//! taken over: everything is bounded, typed and checked, and a path in it leads no further than one of a client.

mod entry;
mod log;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use wire::worker_variable;

use self::entry::{Entry, Key, OriginalKind};
use self::log::{Damage, Log};
use crate::journal::Original;
use crate::shell::{LostReason, OperationId, Outcome, PastOperation};

/// Bytes that are kept of the end of each command's output. It shows how far a command came, for which a screenful or
/// two is enough; all of it is in memory while the server runs.
pub(crate) const MAX_OUTPUT: usize = 16 * 1024;
/// Bytes that are kept of each script.
const MAX_SCRIPT: usize = 8 * 1024;
/// Commands that are kept: as many as a server remembers, with those that can run and those that left processes.
const MAX_OPERATIONS: usize = 64 + 8 + 16;
/// No server gives out a higher number; a forged one would leave none for the next commands.
const LAST_OPERATION: u64 = 1 << 48;
/// Bytes of the snapshot's objects. Like the journal's originals: what git compressed of more than that takes too long
/// to write before the first command.
const MAX_SNAPSHOT: u64 = 16 * 1024 * 1024;
/// The longest path that the kernel takes.
const MAX_PATH: usize = 4096;

/// The state files of the session, if it has any.
#[derive(Debug, Default)]
pub(crate) struct State(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    log: Log,
    /// Numbers what is written once.
    written: u32,
    /// Oldest first.
    operations: VecDeque<OperationId>,
    /// The server ends its commands, so how they end now says nothing about them.
    is_ending: bool,
    /// It was said that nothing can be written.
    has_failed: bool,
}

/// What an earlier server of the session has left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// How many servers the session had before.
    pub(crate) servers: u32,
    pub(crate) originals: Vec<(PathBuf, Original)>,
    /// More files were changed than could be recorded.
    pub(crate) is_incomplete: bool,
    /// Oldest first.
    pub(crate) operations: Vec<PastOperation>,
    pub(crate) snapshot: Option<KeptSnapshot>,
}

/// What `session_info` tells of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restored {
    pub(crate) servers: u32,
    pub(crate) files: usize,
    pub(crate) operations: usize,
    pub(crate) lost: usize,
}

impl Restored {
    pub(crate) fn of(recovered: &Recovered) -> Self {
        Self {
            servers: recovered.servers,
            files: recovered.originals.len(),
            operations: recovered.operations.len(),
            lost: recovered.operations.iter().filter(|operation| operation.is_lost()).count(),
        }
    }
}

/// The snapshot of an earlier server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeptSnapshot {
    /// A tree, with objects that are read when they are needed.
    Tree(String),
    /// None could be taken, or it was too large to be kept.
    Missing,
}

impl State {
    /// Takes the files that the gateway passed, and reads them.
    pub(crate) fn take() -> (Self, Recovered) {
        let files = fence::take_passed_files(worker_variable::STATE).and_then(|files| files.try_into().ok());
        let Some(files) = files else { return (Self::default(), Recovered::default()) };
        Self::open(files)
    }

    /// Reads what is there. What is damaged is left as it is, and named on stderr, which the gateway logs.
    fn open(files: [std::fs::File; 2]) -> (Self, Recovered) {
        let mut reading = Reading::default();
        let (log, damage) = match Log::open(files, &mut |entry, bytes| reading.take(entry, bytes)) {
            Ok(opened) => opened,
            Err(error) => {
                tell(&format!("the state of the session cannot be read: {error}"));
                return (Self::default(), Recovered::default());
            }
        };
        if let Some(Damage { file, at, entries }) = damage {
            tell(&format!(
                "the state of the session is damaged in file {file} at byte {at}: {entries} entries before \
                 that were read, the file is set aside and another one goes on"
            ));
        }
        let recovered = reading.finish(log.is_empty());
        let mut kept = Kept {
            written: reading.written,
            log,
            operations: recovered.operations.iter().map(|operation| operation.id).collect(),
            is_ending: false,
            has_failed: false,
        };
        if !kept.log.is_empty() {
            kept.go_on(&recovered);
        }
        (Self(Mutex::new(Some(kept))), recovered)
    }

    fn with(&self, act: impl FnOnce(&mut Kept)) {
        if let Some(kept) = &mut *self.0.lock() {
            act(kept);
        }
    }

    /// Whether anything is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.lock().is_some()
    }

    pub(crate) fn note_original(&self, path: &Path, before: &Original) {
        self.with(|kept| {
            let path = path.as_os_str().as_bytes();
            let (kind, contents): (_, &[u8]) = match before {
                Original::Nothing => (OriginalKind::Nothing, &[]),
                Original::Unkept => (OriginalKind::Unkept, &[]),
                Original::Contents(contents) => (OriginalKind::Contents, contents),
            };
            kept.written += 1;
            let key = Key::Original(kept.written);
            kept.write(key, &Entry::Original { path: path.len(), kind }, &[path, contents]);
        });
    }

    pub(crate) fn note_incomplete(&self) {
        self.with(|kept| kept.write(Key::Incomplete, &Entry::Incomplete, &[]));
    }

    pub(crate) fn operation_started(&self, id: OperationId, script: &str, directory: &str) {
        self.with(|kept| {
            let mut length = script.len().min(MAX_SCRIPT);
            while !script.is_char_boundary(length) {
                length -= 1;
            }
            let script = &script[..length];
            let at = milliseconds(SystemTime::now());
            kept.operations.push_back(id);
            while kept.operations.len() > MAX_OPERATIONS {
                if let Some(oldest) = kept.operations.pop_front() {
                    kept.forget(oldest);
                }
            }
            let entry = Entry::Started { id: id.0, at, directory: directory.to_owned() };
            kept.write(Key::Started(id.0), &entry, &[script.as_bytes()]);
        });
    }

    /// It could not be started after all.
    pub(crate) fn operation_failed(&self, id: OperationId) {
        self.with(|kept| {
            kept.operations.retain(|known| *known != id);
            kept.forget(id);
        });
    }

    /// The newest output of a command, and the size of all of it.
    pub(crate) fn operation_output(&self, id: OperationId, newest: &[u8], total: u64) {
        self.with(|kept| {
            if kept.operations.contains(&id) && !kept.is_ending {
                kept.write(Key::Output(id.0), &Entry::Output { id: id.0, total }, &[newest]);
            }
        });
    }

    pub(crate) fn operation_ended(&self, id: OperationId, outcome: Outcome, took_ms: u64) {
        self.with(|kept| {
            if kept.operations.contains(&id) && !kept.is_ending {
                kept.write(Key::Ended(id.0), &Entry::Ended { id: id.0, outcome, took_ms }, &[]);
            }
        });
    }

    /// The server was told to end, and ends its commands.
    pub(crate) fn end(&self) {
        self.with(|kept| {
            kept.is_ending = true;
            if !kept.operations.is_empty() {
                kept.write(Key::Ending, &Entry::Ending, &[]);
            }
        });
    }

    /// Keeps that there is no snapshot from before the first command, so that none is taken later.
    pub(crate) fn note_missing_snapshot(&self) {
        self.with(|kept| kept.write(Key::Snapshot, &Entry::Snapshot { tree: None }, &[]));
    }

    /// Keeps a snapshot, with the objects that are in no other place.
    pub(crate) fn note_snapshot(&self, tree: &str, objects: &[(String, Vec<u8>)]) {
        self.with(|kept| {
            let bytes: u64 = objects.iter().map(|(_, contents)| contents.len() as u64).sum();
            let is_kept = bytes <= MAX_SNAPSHOT;
            for (name, contents) in objects.iter().filter(|_| is_kept) {
                kept.written += 1;
                let key = Key::Object(kept.written);
                kept.write(key, &Entry::Object { name: name.clone() }, &[contents]);
            }
            let tree = is_kept.then(|| tree.to_owned());
            kept.write(Key::Snapshot, &Entry::Snapshot { tree }, &[]);
        });
    }

    /// The objects of the snapshot.
    pub(crate) fn snapshot_objects(&self) -> Vec<(String, Vec<u8>)> {
        let mut objects = Vec::new();
        self.with(|kept| {
            let each = &mut |entry: Entry, contents: Vec<u8>| {
                if let Entry::Object { name } = entry
                    && is_object_name(&name)
                {
                    objects.push((name, contents));
                }
            };
            if let Err(error) = kept.log.read(|key| matches!(key, Key::Object(_)), each) {
                tell(&format!("the snapshot of the session cannot be read: {error}"));
            }
        });
        objects
    }
}

impl Kept {
    /// Writes an entry. What cannot be written is not kept; the session goes on.
    fn write(&mut self, key: Key, entry: &Entry, parts: &[&[u8]]) {
        match self.log.append(key, entry, parts) {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tell(&format!("the state of the session is not kept: {error}"));
                }
            }
        }
    }

    fn forget(&mut self, id: OperationId) {
        for key in [Key::Started(id.0), Key::Output(id.0), Key::Ended(id.0)] {
            self.log.forget(&key);
        }
    }

    /// Writes down what a further server has made of what it found.
    fn go_on(&mut self, recovered: &Recovered) {
        self.write(Key::Began, &Entry::Began { servers: recovered.servers }, &[]);
        for operation in recovered.operations.iter().filter(|operation| operation.is_newly_lost) {
            let Outcome::Lost(reason) = operation.outcome else { continue };
            let entry = Entry::Ended { id: operation.id.0, outcome: Outcome::Lost(reason), took_ms: 0 };
            self.write(Key::Ended(operation.id.0), &entry, &[]);
        }
        self.log.forget(&Key::Ending);
    }
}

/// Puts together what is read.
#[derive(Debug, Default)]
struct Reading {
    recovered: Recovered,
    was_told_to_end: bool,
    written: u32,
}

impl Reading {
    /// Takes one entry. Returns its key if it is kept, `None` if it is of no use.
    fn take(&mut self, entry: Entry, mut bytes: Vec<u8>) -> Option<Key> {
        match entry {
            Entry::Began { servers } => {
                self.recovered.servers = servers;
                self.was_told_to_end = false;
                Some(Key::Began)
            }
            Entry::Ending => {
                self.was_told_to_end = true;
                Some(Key::Ending)
            }
            Entry::Original { path, kind } => {
                if path > MAX_PATH.min(bytes.len()) {
                    return None;
                }
                let contents = bytes.split_off(path);
                let path = PathBuf::from(OsString::from_vec(bytes));
                let is_plain = |part| matches!(part, Component::Normal(_) | Component::RootDir);
                if !path.is_absolute() || !path.components().all(is_plain) {
                    return None;
                }
                let before = match kind {
                    OriginalKind::Nothing => Original::Nothing,
                    OriginalKind::Unkept => Original::Unkept,
                    OriginalKind::Contents => Original::Contents(contents),
                };
                self.recovered.originals.push((path, before));
                self.written += 1;
                Some(Key::Original(self.written))
            }
            Entry::Incomplete => {
                self.recovered.is_incomplete = true;
                Some(Key::Incomplete)
            }
            Entry::Started { id, at, directory } => self.take_start(id, at, directory, bytes),
            Entry::Output { id, total } => {
                let operation = self.operation(id)?;
                bytes.truncate(MAX_OUTPUT);
                (operation.output, operation.output_bytes) = (bytes, total);
                Some(Key::Output(id))
            }
            Entry::Ended { id, outcome, took_ms } => {
                let operation = self.operation(id)?;
                (operation.outcome, operation.took_ms) = (outcome, took_ms);
                operation.is_newly_lost = false;
                Some(Key::Ended(id))
            }
            Entry::Snapshot { tree } => {
                let snapshot = tree.map_or(KeptSnapshot::Missing, KeptSnapshot::Tree);
                if matches!(&snapshot, KeptSnapshot::Tree(tree) if !is_object_name(tree)) {
                    return None;
                }
                self.recovered.snapshot = Some(snapshot);
                Some(Key::Snapshot)
            }
            Entry::Object { name } if is_object_name(&name) => {
                self.written += 1;
                Some(Key::Object(self.written))
            }
            Entry::Object { .. } => None,
        }
    }

    fn take_start(&mut self, id: u64, at: u64, directory: String, script: Vec<u8>) -> Option<Key> {
        let operations = &mut self.recovered.operations;
        // One that could not be started has left its number to the next.
        operations.pop_if(|last| last.id.0 == id);
        let is_next =
            operations.last().is_none_or(|last| last.id.0 < id) && (1..LAST_OPERATION).contains(&id);
        if !is_next || directory.len() > MAX_PATH || script.len() > MAX_SCRIPT {
            return None;
        }
        if operations.len() >= MAX_OPERATIONS {
            operations.remove(0);
        }
        operations.push(PastOperation {
            id: OperationId(id),
            script: String::from_utf8(script).ok()?,
            directory_name: directory,
            started_ms: at,
            outcome: Outcome::Lost(LostReason::Killed),
            is_newly_lost: true,
            took_ms: 0,
            output: Vec::new(),
            output_bytes: 0,
        });
        Some(Key::Started(id))
    }

    fn operation(&mut self, id: u64) -> Option<&mut PastOperation> {
        self.recovered.operations.iter_mut().find(|operation| operation.id.0 == id)
    }

    fn finish(&mut self, is_empty: bool) -> Recovered {
        let mut recovered = std::mem::take(&mut self.recovered);
        recovered.servers = recovered.servers.saturating_add(u32::from(!is_empty));
        if self.was_told_to_end {
            for operation in recovered.operations.iter_mut().filter(|operation| operation.is_newly_lost) {
                operation.outcome = Outcome::Lost(LostReason::Ended);
            }
        }
        recovered
    }
}

/// Whether git could have given an object this name.
pub(crate) fn is_object_name(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(name.len(), 40 | 64) && name.bytes().all(is_digit)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Tells the operator: the gateway logs what its servers write there.
fn tell(text: &str) {
    eprintln!("ringfence workspace: {text}");
}
