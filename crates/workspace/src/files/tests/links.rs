//! Links are followed as long as they stay inside; deleting and moving act on the link itself. Pipes, sockets and
//! devices are refused by name.

use super::*;

#[test]
fn links_inside_are_followed() {
    let ground = Ground::new();
    ground.link("to-file", "d/b.txt");
    ground.link("d/up", "../a.txt");
    ground.link("to-directory", "d/e");
    ground.link("chain-1", "chain-2");
    ground.link("chain-2", "to-file");
    ground.link("down-and-up", "d/../d/./b.txt");
    for (spelling, contents) in [
        ("to-file", "b"),
        ("d/up", "a"),
        ("to-directory/c.txt", "c"),
        ("to-directory/../b.txt", "b"),
        ("chain-1", "b"),
        ("down-and-up", "b"),
    ] {
        assert_eq!(ground.read(spelling).unwrap(), contents, "{spelling}");
    }
}

#[test]
fn links_that_lead_outside_are_refused_by_every_operation() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    ground.link("absolute", ground.outside("secret"));
    ground.link("absolute-inside", ground.inside("a.txt"));
    ground.link("relative", "../outside/secret");
    ground.link("deep", "d/e/../../../outside/secret");
    ground.link("chain", "relative");
    ground.link("new-name", "../outside/new");
    ground.link("root", "/");
    ground.link("itself-by-way-of-outside", "../ws/a.txt");
    ground.link("magic", "/proc/self/root");
    for spelling in ["absolute", "relative", "deep", "chain", "new-name", "itself-by-way-of-outside"] {
        assert_eq!(ground.code(spelling), "outside_workspace", "{spelling}");
        assert_eq!(ground.write(spelling, "x").unwrap_err().code(), "outside_workspace", "{spelling}");
        assert!(ground.workspace.stat(&ground.path(spelling)).is_err(), "{spelling}");
    }
    // Absolute links are never followed, not even to a target inside: a directory above the workspace may be
    // exchanged.
    assert_eq!(ground.code("absolute-inside"), "outside_workspace");
    for spelling in ["root/etc/passwd", "magic/etc/passwd"] {
        assert_eq!(ground.code(spelling), "outside_workspace", "{spelling}");
    }
    assert_eq!(ground.everything_outside(), before);
    assert_eq!(ground.write("a.txt", "x").ok(), Some(false), "the control");
}

#[test]
fn directories_that_are_links_outside_let_nothing_through() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    ground.link("out", "../outside");
    ground.link("out-absolute", ground.outside(""));
    for out in ["out", "out-absolute"] {
        let below = |name: &str| format!("{out}/{name}");
        assert_eq!(ground.code(&below("secret")), "outside_workspace");
        for name in ["new", "secret", "new/deeper/file", "d/new/file", "d/secret"] {
            let refused = ground.write(&below(name), "x").unwrap_err();
            assert_eq!(refused.code(), "outside_workspace", "{out}/{name}");
        }
        for name in ["new", "new/deeper", "d"] {
            let path = ground.path(&below(name));
            let refused = ground.workspace.make_directory(&path, Parents::Create).unwrap_err();
            assert_eq!(refused.code(), "outside_workspace", "{out}/{name}");
        }
        assert_eq!(ground.target(&below("secret")).unwrap_err().code(), "outside_workspace");
        let listed = ground.workspace.open_directory(&ground.path(out));
        assert_eq!(listed.unwrap_err().code(), "outside_workspace");
        assert_eq!(ground.code(&below("../ws/a.txt")), "outside_workspace", "not even back again");
    }
    assert_eq!(ground.everything_outside(), before);
    ground.link("in", "d");
    assert!(ground.write("in/new/deeper/file", "x").unwrap());
    assert_eq!(ground.read("d/new/deeper/file").unwrap(), "x");
}

#[test]
fn loops_and_long_chains_of_links_end_in_an_error() {
    let ground = Ground::new();
    ground.link("self", "self");
    ground.link("one", "two");
    ground.link("two", "one");
    ground.link("d/round", "../d/round");
    ground.link("step-0", "a.txt");
    for number in 1..=60 {
        ground.link(&format!("step-{number}"), format!("step-{}", number - 1));
    }
    for spelling in ["self", "one", "two", "d/round", "self/x", "step-60"] {
        assert_eq!(ground.code(spelling), "link_loop", "{spelling}");
        assert_eq!(ground.write(spelling, "x").unwrap_err().code(), "link_loop", "{spelling}");
    }
    assert_eq!(ground.read("step-30").unwrap(), "a");
    assert!(!ground.write("step-30", "by way of many").unwrap());
    assert_eq!(ground.read("a.txt").unwrap(), "by way of many");
}

#[test]
fn a_write_through_a_link_changes_what_it_leads_to_and_keeps_the_link() {
    let ground = Ground::new();
    ground.link("d/up", "../a.txt");
    ground.link("dangling", "d/new.txt");
    ground.link("dangling-deep", "not/yet/there");
    assert_eq!(ground.code("dangling"), "not_found");
    assert!(!ground.write("d/up", "through").unwrap());
    assert_eq!(ground.read("a.txt").unwrap(), "through");
    assert!(ground.write("dangling", "made").unwrap());
    assert_eq!(std::fs::read_to_string(ground.inside("d/new.txt")).unwrap(), "made");
    assert!(ground.write("dangling-deep", "made").unwrap());
    assert_eq!(ground.read("not/yet/there").unwrap(), "made");
    for link in ["d/up", "dangling", "dangling-deep"] {
        assert!(ground.inside(link).symlink_metadata().unwrap().is_symlink(), "{link}");
    }
}

#[test]
fn deleting_and_moving_act_on_the_link_never_on_what_it_leads_to() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    for name in ["gone", "moved"] {
        ground.link(name, "../outside/secret");
    }
    ground.link("directory", "../outside/d");
    ground.target("gone").unwrap().delete().unwrap();
    ground.target("directory").unwrap().delete().unwrap();
    let (from, to) = (ground.target("moved").unwrap(), ground.target("d/moved").unwrap());
    from.rename_to(&to, false).unwrap();
    assert_eq!(ground.names(""), ["..foo", "a.txt", "d"]);
    assert!(ground.inside("d/moved").symlink_metadata().unwrap().is_symlink());
    // A link at the destination is replaced, not followed.
    let (from, to) = (ground.target("a.txt").unwrap(), ground.target("d/moved").unwrap());
    assert_eq!(from.rename_to(&to, false).unwrap_err().code(), "already_exists");
    from.rename_to(&to, true).unwrap();
    assert_eq!(ground.read("d/moved").unwrap(), "a");
    assert_eq!(ground.everything_outside(), before);
}

#[test]
fn both_ends_of_a_move_must_be_inside() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    ground.link("out", "../outside");
    for spelling in ["../outside/secret", "out/secret", "/etc/passwd", "d/../../outside/new"] {
        assert_eq!(ground.target(spelling).unwrap_err().code(), "outside_workspace", "{spelling}");
    }
    let rename = |from: &str, to: &str, overwrite: bool| {
        ground.target(from)?.rename_to(&ground.target(to)?, overwrite)
    };
    assert_eq!(rename("a.txt", "d/b.txt", false).unwrap_err().code(), "already_exists");
    assert_eq!(rename("missing", "x", false).unwrap_err().code(), "not_found");
    assert_eq!(rename("a.txt", "d/e", true).unwrap_err().code(), "is_a_directory");
    assert_eq!(rename("d", "a.txt", true).unwrap_err().code(), "not_a_directory");
    assert!(rename("d", "d/e/inside-itself", false).is_err());
    rename("a.txt", "d/b.txt", true).unwrap();
    assert_eq!(ground.read("d/b.txt").unwrap(), "a");
    assert_eq!(ground.everything_outside(), before);
}

#[test]
fn directories_are_not_deleted_as_files() {
    let ground = Ground::new();
    let delete = |name: &str| ground.target(name).unwrap().delete();
    assert_eq!(delete("d").unwrap_err().code(), "is_a_directory");
    assert_eq!(delete("missing").unwrap_err().code(), "not_found");
    assert!(ground.target("d").unwrap().delete_empty_directory().is_err());
    assert_eq!(ground.read("d/b.txt").unwrap(), "b");
    delete("d/e/c.txt").unwrap();
    ground.target("d/e").unwrap().delete_empty_directory().unwrap();
    assert_eq!(ground.names("d"), ["b.txt"]);
}

#[test]
fn pipes_and_sockets_are_named_and_never_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let ground = Ground::new();
    mknodat(CWD, ground.inside("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(ground.inside("s")).unwrap();
    ground.link("to-pipe", "pipe");
    for name in ["pipe", "s", "to-pipe"] {
        let refused = ground.read(name).unwrap_err();
        assert_eq!(refused.code(), "special_file", "{name}: {refused}");
        let refused = ground.write(name, "x").unwrap_err();
        assert_eq!(refused.code(), "special_file", "{name}: {refused}");
        assert!(ground.workspace.open_directory(&ground.path(name)).is_err(), "{name}");
        assert!(ground.workspace.stat(&ground.path(name)).is_ok(), "{name}: looking is fine");
    }
    // Only root can create a device; other users get `EPERM` here.
    let null = rustix::fs::makedev(1, 3);
    match mknodat(CWD, ground.inside("null"), FileType::CharacterDevice, Mode::RWXU, null) {
        Ok(()) => {
            assert_eq!(ground.code("null"), "special_file");
            assert_eq!(ground.write("null", "x").unwrap_err().code(), "special_file");
        }
        Err(errno) => assert_eq!(errno, rustix::io::Errno::PERM),
    }
    ground.target("pipe").unwrap().delete().unwrap();
    assert!(!ground.names("").contains(&"pipe".to_owned()));
}

#[test]
fn missing_directories_are_made_beneath_only() {
    let ground = Ground::new();
    let before = ground.everything_outside();
    let made = |text: &str| ground.workspace.make_directory(&ground.workspace.path(text)?, Parents::Create);
    assert!(made("x/y/z").unwrap());
    assert!(!made("x/y/z").unwrap());
    assert!(!made("d/../x").unwrap());
    assert!(made("d/../x/new").unwrap());
    assert_eq!(made("a.txt").unwrap_err().code(), "already_exists");
    assert_eq!(made("a.txt/x").unwrap_err().code(), "not_a_directory");
    for spelling in ["../outside/x", "new/../../outside/x", "/tmp/ringfence-should-not-be", "../x"] {
        assert_eq!(made(spelling).unwrap_err().code(), "outside_workspace", "{spelling}");
    }
    let refused = ground.write_target("not/there", Parents::Expect).unwrap_err();
    assert_eq!(refused.code(), "not_found");
    assert_eq!(ground.everything_outside(), before);
    assert!(!Path::new("/tmp/ringfence-should-not-be").exists());
}
