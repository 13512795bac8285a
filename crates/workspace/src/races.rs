//! File tools and searches while another thread keeps exchanging files, directories and links (T1, T5): nothing
//! outside the workspace is read, listed or changed. No fence is involved. The control resolves a path first and
//! opens it later, and does get led outside.

mod arena;

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::files::{Expected, Parents, PathError, Workspace};
use crate::search::{Finding, GrepQuery, Patience, Walk, WalkFilter, grep};
use arena::{Arena, EndsAttack, INSIDE, NAME_OUTSIDE, SECRET};

const ROUNDS: u64 = 1_000_000;
const VICTIMS: u64 = 2;
/// The control fails after this many rounds; it needs a few hundred.
const MAX_CONTROL_ROUNDS: u64 = 5_000_000;

/// Returns what an operation saw: the contents of a file, or the names in a directory.
type Attempt = fn(&Arena, &Workspace) -> Result<String, PathError>;

struct Operation {
    name: &'static str,
    /// How many of 256 rounds try it.
    share: usize,
    attempt: Attempt,
    done: AtomicU64,
    refused: AtomicU64,
}

fn operation(name: &'static str, share: usize, attempt: Attempt) -> Operation {
    Operation { name, share, attempt, done: AtomicU64::new(0), refused: AtomicU64::new(0) }
}

fn operations() -> Vec<Operation> {
    vec![
        operation("read below a directory", 60, |_, workspace| read(workspace, "d/f")),
        operation("read a name", 60, |_, workspace| read(workspace, "f")),
        operation("read by way of ..", 40, |_, workspace| read(workspace, "p/q/../../d/sub/../f")),
        operation("read two directories down", 30, |_, workspace| read(workspace, "d/sub/f")),
        operation("look", 36, look),
        operation("list", 20, list),
        operation("write below a directory", 1, |_, workspace| write(workspace, "d/f")),
        operation("write to a name", 1, |_, workspace| write(workspace, "g")),
        operation("create", 1, create),
        operation("create with directories", 1, create_deep),
        operation("make a directory", 1, make_directory),
        operation("delete", 1, delete),
        operation("move below a directory", 1, |arena, workspace| {
            rename(arena, workspace, "d/old", "d/sub/old")
        }),
        operation("move into a directory", 1, |arena, workspace| {
            rename(arena, workspace, "movable", "d/movable")
        }),
        operation("walk", 1, walk),
        operation("search", 1, search),
    ]
}

fn read(workspace: &Workspace, path: &str) -> Result<String, PathError> {
    let mut contents = String::new();
    let mut found = workspace.open_file(&workspace.path(path)?)?;
    found.file.read_to_string(&mut contents).unwrap();
    Ok(contents)
}

fn look(_: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    // The length tells files outside from those inside.
    let stat = workspace.stat(&workspace.path("d/f")?)?;
    let is_secret = usize::try_from(stat.st_size) == Ok(SECRET.len());
    Ok(if is_secret { SECRET } else { INSIDE }.to_owned())
}

fn list(_: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    let directory = workspace.open_directory(&workspace.path("d")?)?;
    let names = rustix::fs::Dir::new(directory).unwrap().flatten();
    Ok(names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
}

fn write(workspace: &Workspace, path: &str) -> Result<String, PathError> {
    let target = workspace.write_target(&workspace.path(path)?, Parents::Create)?;
    workspace.write(&target, INSIDE.as_bytes(), Expected::Anything)?;
    Ok(INSIDE.to_owned())
}

/// Removes what an earlier round left in the directory, whose name may have changed.
fn remove(arena: &Arena, name: &str) {
    let _ = rustix::fs::unlinkat(&arena.directory, name, AtFlags::empty());
}

fn create(arena: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    remove(arena, "created");
    let target = workspace.write_target(&workspace.path("d/created")?, Parents::Expect)?;
    workspace.write(&target, INSIDE.as_bytes(), Expected::Absent)?;
    Ok(INSIDE.to_owned())
}

fn create_deep(arena: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    remove(arena, "new/deeper/f");
    for directory in ["new/deeper", "new"] {
        let _ = rustix::fs::unlinkat(&arena.directory, directory, AtFlags::REMOVEDIR);
    }
    write(workspace, "d/new/deeper/f")
}

fn make_directory(arena: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    let _ = rustix::fs::unlinkat(&arena.directory, "made", AtFlags::REMOVEDIR);
    workspace.make_directory(&workspace.path("d/made")?, Parents::Create)?;
    Ok(INSIDE.to_owned())
}

fn delete(arena: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::openat(&arena.directory, "victim", flags, Mode::RWXU).unwrap());
    workspace.target(&workspace.path("d/victim")?, Parents::Expect)?.delete()?;
    Ok(INSIDE.to_owned())
}

/// Renames there and back.
fn rename(arena: &Arena, workspace: &Workspace, from: &str, to: &str) -> Result<String, PathError> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::openat(&arena.directory, "old", flags, Mode::RWXU).unwrap());
    std::fs::write(arena.root().join("movable"), INSIDE).unwrap();
    let target = |text: &str| workspace.target(&workspace.path(text)?, Parents::Expect);
    let there = target(from).and_then(|from| from.rename_to(&target(to)?, true));
    let back = target(to).and_then(|to| to.rename_to(&target(from)?, true));
    there.and(back).map(|()| INSIDE.to_owned())
}

fn never() -> bool {
    false
}

fn patience() -> Patience<'static> {
    Patience { until: Instant::now() + Duration::from_secs(60), is_cancelled: &never }
}

fn walk(_: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    let path = workspace.path(".")?;
    let start = workspace.open_directory(&path)?;
    let names = parking_lot::Mutex::new(String::new());
    Walk::new(workspace, &path, start, WalkFilter::default(), patience()).run(|| {
        |finding: &Finding<'_>| {
            let mut names = names.lock();
            names.push_str(&finding.name.to_string_lossy());
            names.push(' ');
            true
        }
    });
    Ok(std::mem::take(&mut *names.lock()))
}

fn search(_: &Arena, workspace: &Workspace) -> Result<String, PathError> {
    let path = workspace.path("d")?;
    let start = workspace.open_directory(&path)?;
    let walk = Walk::new(workspace, &path, start, WalkFilter::default(), patience());
    let query = GrepQuery {
        pattern: "SECRET|fine".to_owned(),
        case_sensitive: true,
        is_literal: false,
        context: 0,
        limit: 50,
        files_only: false,
    };
    let report = grep(walk, &query).unwrap();
    let lines = report.hits.iter().flat_map(|hit| &hit.lines).map(|line| line.text.as_str());
    Ok(lines.collect::<Vec<_>>().join(" "))
}

/// Which operation each round tries: all of them in turn, quick ones more often.
fn schedule(operations: &[Operation]) -> Vec<usize> {
    let longest = operations.iter().map(|operation| operation.share).max().unwrap();
    (0..longest)
        .flat_map(|turn| (0..operations.len()).filter(move |index| operations[*index].share > turn))
        .collect()
}

fn is_escape(seen: &str) -> bool {
    seen.contains("SECRET") || seen.split(' ').any(|name| name == NAME_OUTSIDE)
}

/// Tries all operations in turn for `rounds` rounds. Returns the number of escapes.
fn be_victim(arena: &Arena, workspace: &Workspace, operations: &[Operation], rounds: u64) -> u64 {
    let schedule = schedule(operations);
    let mut escapes = 0;
    for index in schedule.iter().cycle().take(usize::try_from(rounds).unwrap()) {
        let operation = &operations[*index];
        match (operation.attempt)(arena, workspace) {
            Ok(seen) => {
                operation.done.fetch_add(1, Ordering::Relaxed);
                escapes += u64::from(is_escape(&seen));
            }
            Err(_) => {
                operation.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    escapes
}

#[test]
fn load_of_a_million_races_with_exchanged_names_never_leads_outside() {
    let arena = Arena::new("races");
    let workspace = Workspace::open(&[arena.root()]).unwrap();
    let operations = operations();
    assert_eq!(schedule(&operations).len(), 256);
    let before = arena.fingerprint_of_outside();
    let begin = Instant::now();
    let escapes: u64 = std::thread::scope(|scope| {
        let _ends = EndsAttack(&arena);
        scope.spawn(|| arena.attack());
        let victims: Vec<_> = (0..VICTIMS)
            .map(|_| scope.spawn(|| be_victim(&arena, &workspace, &operations, ROUNDS.div_ceil(VICTIMS))))
            .collect();
        victims.into_iter().map(|victim| victim.join().unwrap()).sum()
    });
    let mut tried = 0;
    for Operation { name, done, refused, .. } in &operations {
        let (done, refused) = (done.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
        println!("{name}: {done} done, {refused} refused");
        assert!(done > 0, "{name}: an operation that never works proves nothing");
        // A walk begins at the root, which is never exchanged.
        assert!(refused > 0 || name == &"walk", "{name}: it never met an exchanged name");
        tried += done + refused;
    }
    println!("{tried} rounds, {} flips, {:?}", arena.flips.load(Ordering::Relaxed), begin.elapsed());
    assert!(tried >= ROUNDS);
    assert_eq!(escapes, 0, "of {tried} rounds");
    assert_eq!(arena.fingerprint_of_outside(), before, "nothing outside was touched");
}

/// Resolves a path and opens it if it leads inside.
fn read_after_a_look(root: &Path, path: &str) -> Option<String> {
    let path = root.join(path);
    path.canonicalize().ok()?.starts_with(root).then_some(())?;
    std::fs::read_to_string(path).ok()
}

fn write_after_a_look(root: &Path) {
    let path = root.join("d/f");
    if path.canonicalize().is_ok_and(|real| real.starts_with(root)) {
        let _ = std::fs::write(path, INSIDE);
    }
}

/// Attacks until an attempt leads outside. Returns whether one did.
fn escapes_in_time(attempt: impl Fn(&Path) -> bool) -> bool {
    let arena = Arena::new("control");
    std::thread::scope(|scope| {
        let _ends = EndsAttack(&arena);
        scope.spawn(|| arena.attack());
        (0..MAX_CONTROL_ROUNDS).any(|_| attempt(&arena.root()))
    })
}

#[test]
fn looking_first_and_opening_later_leads_outside() {
    for path in ["d/f", "f", "p/q/../../d/sub/../f"] {
        let reads = |root: &Path| read_after_a_look(root, path).is_some_and(|seen| is_escape(&seen));
        assert!(escapes_in_time(reads), "{path}: the attack does not work");
    }
    let writes = |root: &Path| {
        write_after_a_look(root);
        std::fs::read_to_string(root.join("../outside/f")).unwrap() != SECRET
    };
    assert!(escapes_in_time(writes), "the attack does not work");
}
