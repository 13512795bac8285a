//! What a write leaves behind: the whole new file, or the old one and nothing else.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::files::Seen;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn seen(ground: &Ground, text: &str) -> Seen {
    Seen::from(&ground.workspace.open_file(&ground.path(text)).unwrap().stat)
}

#[test]
fn permissions_are_kept_and_set_id_bits_are_not() {
    let ground = Ground::new();
    let file = ground.inside("a.txt");
    for (before, after) in [(0o640, 0o640), (0o755, 0o755), (0o600, 0o600), (0o6755, 0o755), (0o1777, 0o777)]
    {
        set_mode(&file, before);
        assert_eq!(mode(&file), before, "the file system takes the mode");
        assert!(!ground.write("a.txt", "new").unwrap());
        assert_eq!(mode(&file), after, "{before:o}");
    }
}

#[test]
fn the_other_name_of_a_file_keeps_its_old_contents() {
    let ground = Ground::new();
    std::fs::hard_link(ground.outside("secret"), ground.inside("same")).unwrap();
    assert_eq!(ground.read("same").unwrap(), SECRET, "a hard link is a name like any other");
    let inode = ground.inside("same").metadata().unwrap().ino();
    assert!(!ground.write("same", "changed").unwrap());
    assert_eq!(ground.read("same").unwrap(), "changed");
    assert_ne!(ground.inside("same").metadata().unwrap().ino(), inode);
    assert_eq!(std::fs::read_to_string(ground.outside("secret")).unwrap(), SECRET);
}

#[test]
fn a_file_that_changed_in_between_is_not_overwritten() {
    let ground = Ground::new();
    let target = ground.write_target("a.txt", Parents::Expect).unwrap();
    let before = seen(&ground, "a.txt");
    std::fs::write(ground.inside("a.txt"), "from another process").unwrap();
    let refused = ground.workspace.write(&target, b"mine", Expected::Unchanged(before)).unwrap_err();
    assert_eq!(refused.code(), "changed_since_read");
    assert_eq!(ground.read("a.txt").unwrap(), "from another process");
    let current = seen(&ground, "a.txt");
    ground.workspace.write(&target, b"mine", Expected::Unchanged(current)).unwrap();
    assert_eq!(ground.read("a.txt").unwrap(), "mine");

    // Another file of the same length under the name, or no file at all, is a change too.
    let current = seen(&ground, "a.txt");
    std::fs::write(ground.inside("other"), "yours").unwrap();
    std::fs::rename(ground.inside("other"), ground.inside("a.txt")).unwrap();
    let refused = ground.workspace.write(&target, b"mine", Expected::Unchanged(current)).unwrap_err();
    assert_eq!(refused.code(), "changed_since_read");
    std::fs::remove_file(ground.inside("a.txt")).unwrap();
    let refused = ground.workspace.write(&target, b"mine", Expected::Unchanged(current)).unwrap_err();
    assert_eq!(refused.code(), "changed_since_read");
    assert_eq!(ground.names(""), ["..foo", "d"]);
}

#[test]
fn a_file_that_appears_while_another_is_written_is_not_overwritten() {
    let ground = Ground::new();
    let target = ground.write_target("new", Parents::Expect).unwrap();
    for expected in [Expected::Absent, Expected::Anything] {
        let intruder = ground.inside("new");
        let refused = ground.workspace.write_with(&target, expected, FileMode::Kept, |_| {
            std::fs::write(&intruder, "first").unwrap();
            Ok(0)
        });
        let code = refused.unwrap_err().code();
        assert!(code == "already_exists" || code == "changed_since_read", "{expected:?}: {code}");
        assert_eq!(ground.read("new").unwrap(), "first");
        assert_eq!(ground.names(""), ["..foo", "a.txt", "d", "new"], "nothing is left behind");
        std::fs::remove_file(&intruder).unwrap();
    }
    let refused = {
        ground.write("new", "there").unwrap();
        ground.workspace.write(&target, b"x", Expected::Absent).unwrap_err()
    };
    assert_eq!(refused.code(), "already_exists");
}

#[test]
fn a_link_that_appears_while_a_file_is_written_is_not_followed() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    let target = ground.write_target("a.txt", Parents::Expect).unwrap();
    let swapped = ground.workspace.write_with(&target, Expected::Anything, FileMode::Kept, |_| {
        std::fs::remove_file(ground.inside("a.txt")).unwrap();
        ground.link("a.txt", "../outside/secret");
        Ok(0)
    });
    assert_eq!(swapped.unwrap_err().code(), "special_file");
    // Now the link is there before the write begins.
    let refused = ground.workspace.write(&target, b"x", Expected::Anything).unwrap_err();
    assert_eq!(refused.code(), "special_file");
    assert_eq!(ground.everything_outside(), before);
    assert_eq!(ground.names(""), ["..foo", "a.txt", "d"], "nothing is left behind");
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let ground = Ground::new();
    for name in ["a.txt", "new"] {
        let target = ground.write_target(name, Parents::Expect).unwrap();
        let failed = ground.workspace.write_with(&target, Expected::Anything, FileMode::Kept, |file| {
            std::io::Write::write_all(file, b"half of it")?;
            Err(std::io::Error::other("the disk is full"))
        });
        let failed = failed.unwrap_err();
        assert!(failed.to_string().contains("the disk is full"), "{failed}");
    }
    assert_eq!(ground.read("a.txt").unwrap(), "a");
    assert_eq!(ground.names(""), ["..foo", "a.txt", "d"]);
    let target = ground.write_target("d", Parents::Expect).unwrap();
    let refused = ground.workspace.write(&target, b"x", Expected::Anything).unwrap_err();
    assert_eq!(refused.code(), "is_a_directory");
    assert_eq!(ground.names(""), ["..foo", "a.txt", "d"]);
}

#[test]
fn a_write_goes_into_the_directory_that_was_resolved() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    let target = ground.write_target("d/e/new", Parents::Expect).unwrap();
    std::fs::rename(ground.inside("d/e"), ground.inside("elsewhere")).unwrap();
    ground.link("d/e", "../../outside");
    ground.workspace.write(&target, b"x", Expected::Absent).unwrap();
    assert_eq!(ground.everything_outside(), before);
    assert_eq!(ground.names("elsewhere"), ["c.txt", "new"]);
    // A new lookup is refused.
    assert_eq!(ground.write("d/e/new", "x").unwrap_err().code(), "outside_workspace");
}

#[test]
fn a_workspace_whose_directory_is_replaced_stays_in_the_directory_it_opened() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    std::fs::rename(ground.inside(""), ground.base.join("moved")).unwrap();
    std::os::unix::fs::symlink("outside", ground.base.join("ws")).unwrap();
    assert_eq!(ground.read("a.txt").unwrap(), "a");
    assert_eq!(ground.code("secret"), "not_found");
    let absolute = ground.base.join("ws/secret").display().to_string();
    assert_eq!(ground.code(&absolute), "not_found");
    assert!(ground.write("new", "x").unwrap());
    assert_eq!(std::fs::read_to_string(ground.base.join("moved/new")).unwrap(), "x");
    assert_eq!(ground.everything_outside(), before);
}

#[test]
fn durable_writes_do_the_same() {
    let mut ground = Ground::new();
    ground.workspace = Workspace::open(&[ground.inside("")]).unwrap().durable(true);
    assert!(ground.write("x/y/new", "durable").unwrap());
    assert!(!ground.write("a.txt", "durable").unwrap());
    assert_eq!(ground.read("x/y/new").unwrap(), "durable");
    assert_eq!(ground.read("a.txt").unwrap(), "durable");
    assert_eq!(ground.names("x/y"), ["new"]);
    assert_eq!(ground.write("../outside/new", "x").unwrap_err().code(), "outside_workspace");
}

#[test]
fn the_mode_of_a_new_file_is_the_usual_one() {
    let ground = Ground::new();
    std::fs::write(ground.inside("usual"), "x").unwrap();
    assert!(ground.write("new", "x").unwrap());
    assert_eq!(mode(&ground.inside("new")), mode(&ground.inside("usual")));
}
