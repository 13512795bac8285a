//! What a later server reads: what was written, as far as it is sound, and nothing else.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;

/// The two files of a session, which each server opens anew.
struct Files([File; 2]);

impl Files {
    fn new() -> Self {
        let name = |number: u32| {
            let unique = format!("{}-{}", std::process::id(), std::thread::current().name().unwrap());
            std::env::temp_dir().join(format!("ringfence-state-{}-{number}", unique.replace(':', "_")))
        };
        let open = |number| {
            let path = name(number);
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
            std::fs::remove_file(path).unwrap();
            file.unwrap()
        };
        Self([open(1), open(2)])
    }

    fn open(&self) -> (State, Recovered) {
        State::open([self.0[0].try_clone().unwrap(), self.0[1].try_clone().unwrap()])
    }

    fn length(&self, file: usize) -> u64 {
        self.0[file].metadata().unwrap().len()
    }
}

fn contents(text: &str) -> Original {
    Original::Contents(text.as_bytes().to_vec())
}

fn id(number: u64) -> OperationId {
    OperationId(number)
}

#[test]
fn a_session_that_changes_nothing_writes_nothing() {
    let files = Files::new();
    let (state, recovered) = files.open();
    assert!(state.is_kept());
    assert_eq!((recovered.servers, files.length(0), files.length(1)), (0, 0, 0));
    state.end();
    assert_eq!(files.open().1.servers, 0);
}

#[test]
fn a_later_server_finds_originals_commands_and_the_snapshot() {
    let files = Files::new();
    let (state, _) = files.open();
    state.note_original(Path::new("/project/a"), &contents("before"));
    state.note_original(Path::new("/project/new"), &Original::Nothing);
    state.note_original(Path::new("/project/large"), &Original::Unkept);
    state.operation_started(id(1), "true", ".");
    state.operation_output(id(1), b"some", 4);
    state.operation_output(id(1), b"some more", 9);
    state.operation_ended(id(1), Outcome::Exited(3), 1500);
    state.operation_started(id(2), "sleep 100", "deep");
    state.operation_output(id(2), b"last words", 1000);
    let (tree, object) = ("a".repeat(40), "b".repeat(40));
    state.note_snapshot(&tree, &[(object.clone(), b"compressed".to_vec())]);
    drop(state);
    let (state, recovered) = files.open();
    assert_eq!(recovered.servers, 1);
    let originals: Vec<_> =
        [("a", contents("before")), ("new", Original::Nothing), ("large", Original::Unkept)]
            .map(|(name, before)| (Path::new("/project").join(name), before))
            .into();
    assert_eq!(recovered.originals, originals);
    assert_eq!(recovered.snapshot, Some(KeptSnapshot::Tree(tree)));
    assert_eq!(state.snapshot_objects(), [(object, b"compressed".to_vec())]);
    let [ended, lost] = &recovered.operations[..] else { panic!("{recovered:?}") };
    assert_eq!(
        (ended.outcome, ended.took_ms, &ended.output[..]),
        (Outcome::Exited(3), 1500, &b"some more"[..])
    );
    assert_eq!((lost.outcome, lost.output_bytes), (Outcome::Lost(LostReason::Killed), 1000));
    assert_eq!((lost.script.as_str(), lost.directory_name.as_str()), ("sleep 100", "deep"));
    drop(state);
    let (_, again) = files.open();
    assert_eq!(again.servers, 2);
    assert_eq!(again.operations[1].outcome, Outcome::Lost(LostReason::Killed));
    assert!(!again.operations[1].is_newly_lost);
}

#[test]
fn a_command_of_a_server_that_was_told_to_end_is_lost_for_that_reason() {
    let files = Files::new();
    let (state, _) = files.open();
    state.operation_started(id(1), "sleep 100", ".");
    state.end();
    state.operation_ended(id(1), Outcome::Cancelled, 1);
    drop(state);
    let (state, recovered) = files.open();
    assert_eq!(recovered.operations[0].outcome, Outcome::Lost(LostReason::Ended));
    // The reason of the first is not that of the second.
    state.operation_started(id(2), "sleep 200", ".");
    drop(state);
    let outcomes: Vec<Outcome> = files.open().1.operations.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Outcome::Lost(LostReason::Ended), Outcome::Lost(LostReason::Killed)]);
}

#[test]
fn what_was_being_written_at_a_kill_is_left_out_and_written_over() {
    let files = Files::new();
    let (state, _) = files.open();
    state.note_original(Path::new("/project/a"), &contents("before"));
    let whole = files.length(0);
    state.note_original(Path::new("/project/b"), &contents("before"));
    let all = files.length(0);
    drop(state);
    for cut in whole + 1..all {
        let copy = Files::new();
        let mut bytes = vec![0; usize::try_from(cut).unwrap()];
        files.0[0].read_exact_at(&mut bytes, 0).unwrap();
        copy.0[0].write_all_at(&bytes, 0).unwrap();
        let (state, recovered) = copy.open();
        assert_eq!(recovered.originals.len(), 1, "cut at {cut}");
        state.note_original(Path::new("/project/c"), &contents("x"));
        drop(state);
        assert_eq!(copy.open().1.originals.len(), 2, "cut at {cut}");
        assert_eq!(copy.length(1), 0, "nothing was damaged");
    }
}

#[test]
fn a_damaged_file_is_set_aside_with_what_is_before_the_damage_kept() {
    let files = Files::new();
    let (state, _) = files.open();
    state.note_original(Path::new("/project/a"), &contents("before"));
    let whole = files.length(0);
    state.note_original(Path::new("/project/b"), &contents("before"));
    state.note_original(Path::new("/project/c"), &contents("before"));
    drop(state);
    files.0[0].write_all_at(b"!", whole + 20).unwrap();
    let damaged = files.length(0);
    let (state, recovered) = files.open();
    assert_eq!(recovered.originals.len(), 1);
    state.note_original(Path::new("/project/d"), &contents("x"));
    drop(state);
    assert_eq!(files.length(0), damaged, "it stays for a look");
    let paths: Vec<_> = files.open().1.originals.into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [Path::new("/project/a"), Path::new("/project/d")]);
}

#[test]
fn no_damage_of_one_byte_is_believed_or_stops_the_server() {
    let files = Files::new();
    let (state, _) = files.open();
    state.note_original(Path::new("/project/a"), &contents("before"));
    state.operation_started(id(1), "true", ".");
    drop(state);
    let length = files.length(0);
    for place in 0..length {
        let copy = Files::new();
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        files.0[0].read_exact_at(&mut bytes, 0).unwrap();
        bytes[usize::try_from(place).unwrap()] ^= 0x20;
        copy.0[0].write_all_at(&bytes, 0).unwrap();
        let (state, recovered) = copy.open();
        let is_sound =
            recovered.originals.iter().all(|one| *one == ("/project/a".into(), contents("before")));
        assert!(is_sound && recovered.originals.len() + recovered.operations.len() < 2, "byte {place}");
        state.note_original(Path::new("/project/z"), &contents("x"));
        drop(state);
        assert_eq!(copy.open().1.originals.last().unwrap().0, Path::new("/project/z"), "byte {place}");
    }
}

#[test]
fn forged_entries_are_of_no_use() {
    let files = Files::new();
    let (state, _) = files.open();
    state.with(|kept| {
        let original = |path: usize| Entry::Original { path, kind: OriginalKind::Contents };
        for path in ["../../etc/passwd", "/project/../../etc/passwd", "relative"] {
            kept.write(Key::Original(1), &original(path.len()), &[path.as_bytes(), b"x"]);
        }
        kept.write(Key::Original(2), &original(usize::MAX), &[b"/project/a"]);
        kept.write(Key::Original(3), &original(MAX_PATH + 1), &[&[b'/'; 2 * MAX_PATH]]);
        let started = |id| Entry::Started { id, at: u64::MAX, directory: ".".to_owned() };
        for number in [0, u64::MAX, LAST_OPERATION] {
            kept.write(Key::Started(number), &started(number), &[b"true"]);
        }
        kept.write(Key::Started(1), &started(1), &[&[0xff; 4]]);
        kept.write(Key::Started(1), &started(1), &[&vec![b'x'; MAX_SCRIPT + 1]]);
        kept.write(Key::Ended(9), &Entry::Ended { id: 9, outcome: Outcome::Exited(0), took_ms: 0 }, &[]);
        for name in ["../../../../etc/passwd", "", &"g".repeat(40), &"A".repeat(40)] {
            kept.write(Key::Object(1), &Entry::Object { name: name.to_owned() }, &[b"x"]);
            kept.write(Key::Snapshot, &Entry::Snapshot { tree: Some(name.to_owned()) }, &[]);
        }
        kept.write(Key::Started(7), &started(7), &[b"true"]);
        kept.write(Key::Output(7), &Entry::Output { id: 7, total: u64::MAX }, &[&vec![b'x'; 3 * MAX_OUTPUT]]);
    });
    drop(state);
    let (state, recovered) = files.open();
    assert!(recovered.originals.is_empty() && recovered.snapshot.is_none(), "{recovered:?}");
    assert!(state.snapshot_objects().is_empty());
    let [only] = &recovered.operations[..] else { panic!("{recovered:?}") };
    assert_eq!((only.id, only.output.len()), (id(7), MAX_OUTPUT));
    only.report();
}

#[test]
fn a_file_with_no_end_and_a_generation_with_no_next_one_are_refused() {
    let files = Files::new();
    files.0[0].write_all_at(&[7; 4096], 0).unwrap();
    let (state, recovered) = files.open();
    assert_eq!(recovered.servers, 0);
    state.note_original(Path::new("/project/a"), &contents("x"));
    assert_eq!(files.length(0), 4096, "it is set aside");
    assert_eq!(files.open().1.originals.len(), 1);
    // As long as no server makes it.
    files.0[1].set_len(1 << 40).unwrap();
    assert_eq!(files.open().1.originals.len(), 1);
}

#[test]
fn commands_without_end_take_room_for_a_few() {
    let files = Files::new();
    let (state, _) = files.open();
    let output = vec![b'x'; MAX_OUTPUT];
    for number in 1..=1000 {
        state.operation_started(id(number), &"y".repeat(100_000), ".");
        state.operation_output(id(number), &output, 1 << 30);
        state.operation_output(id(number), &output, 1 << 31);
        state.operation_ended(id(number), Outcome::Exited(0), 1);
    }
    let most = 2 * (MAX_OPERATIONS as u64 * 25_000) + (2 << 20);
    assert!(files.length(0) + files.length(1) < most, "{} {}", files.length(0), files.length(1));
    drop(state);
    let (_, recovered) = files.open();
    assert_eq!(recovered.operations.len(), MAX_OPERATIONS);
    assert_eq!(recovered.operations.last().unwrap().id, id(1000));
    assert_eq!(recovered.operations[0].script.len(), MAX_SCRIPT);
}

#[test]
fn a_snapshot_that_is_too_large_is_missing_later() {
    let files = Files::new();
    let (state, _) = files.open();
    let large = vec![0; usize::try_from(MAX_SNAPSHOT).unwrap() / 2 + 1];
    state.note_snapshot(&"a".repeat(40), &[("b".repeat(40), large.clone()), ("c".repeat(40), large)]);
    assert!(files.length(0) < 4096);
    assert_eq!(files.open().1.snapshot, Some(KeptSnapshot::Missing));
}
