//! Names, locks, trash and prune.

use std::path::PathBuf;
use std::time::Duration;

use super::stage::Stage;
use crate::{Event, Method, NewCopy, PruneRules, StagingError, Unsaved, Workspaces};

fn named(stage: &Stage, name: &str) -> Result<crate::WorkspaceCopy, StagingError> {
    let name = Some(name.parse().unwrap());
    stage.workspaces.create(NewCopy { name, ..NewCopy::of(&stage.base, Method::Overlay) })
}

#[test]
fn a_name_is_unique_and_finds_its_copy_after_a_restart() {
    let stage = Stage::new("names");
    let copy = named(&stage, "fix-login").unwrap();
    assert!(matches!(named(&stage, "fix-login"), Err(StagingError::NameTaken { .. })));
    let automatic = stage.create(Method::Copy);
    assert!(automatic.name().starts_with("project-"));
    let again = Workspaces::open(stage.workspaces.root()).unwrap();
    assert_eq!(again.find("fix-login").unwrap().record().id, copy.record().id);
    assert!(matches!(again.find("other"), Err(StagingError::NotFound { .. })));
    let names: Vec<_> =
        again.list().unwrap().into_iter().map(|copy| copy.unwrap().name().to_owned()).collect();
    assert_eq!(names, ["fix-login".to_owned(), automatic.name().to_owned()]);
}

#[test]
fn a_damaged_record_hides_no_other_copy() {
    let stage = Stage::new("damaged");
    let copy = named(&stage, "good").unwrap();
    let bad = named(&stage, "bad").unwrap();
    std::fs::write(bad.directory().join("record.json"), "{").unwrap();
    let all = stage.workspaces.list().unwrap();
    assert!(all[0].as_ref().unwrap().name() == copy.name() && all.len() == 2);
    assert!(matches!(all[1], Err(StagingError::DamagedRecord { .. })));
}

#[test]
fn one_process_uses_a_copy_at_a_time() {
    let stage = Stage::new("locks");
    let copy = named(&stage, "one").unwrap();
    assert_eq!(copy.user(), None);
    let occupied = copy.occupy().unwrap();
    assert_eq!(copy.user(), Some(Some(std::process::id())));
    let again = stage.workspaces.find("one").unwrap();
    let Err(StagingError::InUse { pid, .. }) = again.occupy() else { panic!() };
    assert_eq!(pid, Some(std::process::id()));
    assert!(matches!(
        stage.workspaces.discard(again, Unsaved::default(), true),
        Err(StagingError::InUse { .. })
    ));
    drop(occupied);
    copy.occupy().unwrap();
}

#[test]
fn a_discarded_copy_can_be_restored_until_its_deadline() {
    let stage = Stage::new("trash");
    stage.sh("echo 1 > a");
    let copy = named(&stage, "one").unwrap();
    copy.sh("echo 2 > a; mkdir -p x/y; chmod 0 x/y");
    let refused = stage.workspaces.discard(copy, Unsaved::default(), false);
    assert!(matches!(refused, Err(StagingError::Unsaved { .. })), "{refused:?}");
    let copy = stage.workspaces.find("one").unwrap();
    stage.workspaces.discard(copy, Unsaved::default(), true).unwrap();
    assert!(stage.workspaces.find("one").is_err());
    named(&stage, "one").unwrap();
    let trash = stage.workspaces.trash().unwrap();
    assert!(matches!(stage.workspaces.restore(&trash[0], None), Err(StagingError::NameTaken { .. })));
    let back = stage.workspaces.restore(&trash[0], Some("two".parse().unwrap())).unwrap();
    assert_eq!(back.seen().entries.len(), 3);
    back.sh("grep -qx 2 a");
    let commits = Unsaved { commits: 1 };
    let one = stage.workspaces.find("one").unwrap();
    assert!(matches!(stage.workspaces.discard(one, commits, false), Err(StagingError::Unsaved { .. })));
    // Past its deadline the trash gives it up.
    stage.workspaces.discard_until(back, Unsaved::default(), true, Duration::ZERO).unwrap();
    let pruned = stage.workspaces.prune(&PruneRules::default(), &|_| Unsaved::default()).unwrap();
    assert!(pruned.expired == 1 && pruned.freed_bytes > 0 && pruned.removed.is_empty());
    assert!(stage.workspaces.trash().unwrap().is_empty());
}

#[test]
fn prune_takes_the_oldest_and_nothing_that_is_unsaved_or_in_use() {
    let stage = Stage::new("prune");
    stage.sh("head -c 300000 /dev/urandom > data");
    let mut copies: Vec<_> = (0..4).map(|_| stage.create(Method::Copy)).collect();
    for (age, copy) in copies.iter_mut().enumerate() {
        let used = jiff::Timestamp::now() - Duration::from_secs(3600 * (10 - age as u64));
        copy.update(|record| record.used = used).unwrap();
    }
    copies[0].sh("echo unsaved > new");
    let _occupied = copies[1].occupy().unwrap();
    let rules =
        PruneRules { older_than: Some(Duration::from_secs(3600 * 7 + 1800)), ..PruneRules::default() };
    let dry = stage
        .workspaces
        .prune(&PruneRules { dry_run: true, ..rules.clone() }, &|_| Unsaved::default())
        .unwrap();
    assert_eq!((dry.removed.len(), dry.kept.len(), stage.workspaces.list().unwrap().len()), (1, 2, 4));
    let pruned = stage.workspaces.prune(&rules, &|_| Unsaved::default()).unwrap();
    assert_eq!(pruned.removed, [copies[2].record().name.clone()]);
    assert_eq!(stage.workspaces.trash().unwrap().len(), 1);
    let rules = PruneRules { most_bytes: Some(0), ..PruneRules::default() };
    let pruned = stage.workspaces.prune(&rules, &|_| Unsaved::default()).unwrap();
    assert_eq!(pruned.removed, [copies[3].record().name.clone()]);
    assert!(pruned.freed_bytes > 300_000 && pruned.kept.len() == 2);
    assert_eq!(stage.workspaces.trash().unwrap().len(), 1, "that one is gone for good");
}

#[test]
fn what_a_killed_creation_left_is_swept() {
    let stage = Stage::new("sweep");
    let half = stage.workspaces.root().join(".new-0123");
    std::fs::create_dir(&half).unwrap();
    Workspaces::open(stage.workspaces.root()).unwrap();
    assert!(half.exists(), "a young one may be about to be locked");
    std::fs::write(half.join("making.lock"), "1").unwrap();
    let lock = crate::state_files::lock(&half.join("making.lock")).unwrap();
    Workspaces::open(stage.workspaces.root()).unwrap();
    assert!(half.exists(), "it is being made");
    drop(lock);
    Workspaces::open(stage.workspaces.root()).unwrap();
    assert!(!half.exists());
}

#[test]
fn a_root_that_others_can_read_is_refused() {
    let stage = Stage::new("private");
    let root = stage.directory.join("open");
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(matches!(Workspaces::open(&root), Err(StagingError::NotPrivate { .. })));
    let home = PathBuf::from("/home/ada");
    assert_eq!(
        Workspaces::default_root(Some("/s".as_ref()), &home),
        PathBuf::from("/s/ringfence/workspaces")
    );
    let usual = PathBuf::from("/home/ada/.local/state/ringfence/workspaces");
    assert_eq!(Workspaces::default_root(None, &home), usual);
    assert_eq!(Workspaces::default_root(Some("relative".as_ref()), &home), usual);
}

#[test]
fn a_tree_deeper_than_the_descriptors_of_a_process_is_removed() {
    let stage = Stage::new("deep");
    let copy = stage.create(Method::Overlay);
    copy.sh("i=0; while [ $i -lt 1500 ]; do mkdir d; cd d; i=$((i+1)); done; touch end");
    let changes = copy.seen();
    assert!(changes.left_aside.iter().any(|left| left.reason == crate::LeftAsideReason::TooDeep));
    let trashed = stage.workspaces.discard(copy, Unsaved::default(), true).unwrap();
    stage.workspaces.delete(&trashed).unwrap();
    assert!(stage.workspaces.trash().unwrap().is_empty());
}

#[test]
fn the_history_tells_what_happened() {
    let stage = Stage::new("told");
    let copy = stage.create(Method::Overlay);
    copy.sh("echo 1 > a");
    copy.note(Event::Attached { client: "cursor".into(), session: None }).unwrap();
    copy.apply_all().unwrap();
    copy.undo().unwrap();
    let events: Vec<_> = copy.history().unwrap().into_iter().map(|line| line.event).collect();
    assert!(
        matches!(
            events[..],
            [
                Event::Created { .. },
                Event::Attached { .. },
                Event::Applied { paths: 1 },
                Event::Undone { paths: 1 }
            ]
        ),
        "{events:?}"
    );
}
