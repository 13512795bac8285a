//! How a profile decides about files, by the model of [`super::super::evaluate`].

use super::super::evaluate::{Access, Evaluator, Verdict};
use super::*;

const WRITES: [&str; 6] = [
    "file-write-data",
    "file-write-create",
    "file-write-unlink",
    "file-write-mode",
    "file-write-xattr",
    "file-link",
];
const READS: [&str; 3] = ["file-read-data", "file-read-metadata", "file-read-xattr"];

struct Decisions(Evaluator);

impl Decisions {
    fn of(request: &SeatbeltRequest) -> Self {
        Self(Evaluator::new(&made(request)))
    }

    #[track_caller]
    fn check(&self, operations: &[&str], path: &str, vnode_type: &str, expected: Verdict) {
        for operation in operations {
            let verdict = self.0.decide(Access { operation, path, vnode_type });
            assert_eq!(verdict, expected, "{operation} {path}");
        }
    }

    #[track_caller]
    fn allows(&self, operations: &[&str], path: &str) {
        self.check(operations, path, "REGULAR-FILE", Verdict::Allowed);
    }

    #[track_caller]
    fn denies(&self, operations: &[&str], path: &str) {
        self.check(operations, path, "REGULAR-FILE", Verdict::Denied);
    }
}

#[test]
fn writes_are_for_the_scope_only() {
    for request in [plain_request(), full_request()] {
        let decisions = Decisions::of(&request);
        decisions.allows(&WRITES, "/Users/ada/work/src/main.rs");
        decisions.allows(&WRITES, "/Users/ada/work/a \"b\" (c)");
        for outside in
            ["/Users/ada/workshop/x", "/Users/ada/x", "/Users/ada", "/etc/hosts", "/", "/private/tmp/x"]
        {
            decisions.denies(&WRITES, outside);
            decisions.denies(&["file-clone"], outside);
        }
    }
}

#[test]
fn the_scope_itself_can_be_created() {
    let decisions = Decisions::of(&full_request());
    for root in ["/Users/ada/work", "/private/tmp/session", "/tmp/session"] {
        decisions.check(&["file-write-create"], root, "DIRECTORY", Verdict::Allowed);
    }
}

#[test]
fn both_spellings_of_a_scope_are_writable() {
    let decisions = Decisions::of(&full_request());
    decisions.allows(&WRITES, "/private/tmp/session/x");
    decisions.allows(&WRITES, "/tmp/session/x");
    decisions.denies(&WRITES, "/private/tmp/session/config.json");
    decisions.denies(&WRITES, "/tmp/session/config.json");
}

#[test]
fn protected_paths_are_read_only() {
    let decisions = Decisions::of(&full_request());
    for protected in ["/Users/ada/work/.git/hooks", "/Users/ada/work/.git/hooks/pre-commit"] {
        decisions.denies(&WRITES, protected);
        decisions.allows(&READS, protected);
    }
    decisions.allows(&WRITES, "/Users/ada/work/.git/index");
    decisions.allows(&WRITES, "/Users/ada/work/.git/hooks-of-mine");
}

#[test]
fn a_protected_directory_cannot_be_moved_in_or_out_with_its_parent() {
    let decisions = Decisions::of(&full_request());
    let moved = ["file-write-unlink", "file-write-create"];
    decisions.check(&moved, "/Users/ada/work/.git", "DIRECTORY", Verdict::Denied);
    decisions.check(&moved, "/Users/ada/work/src", "DIRECTORY", Verdict::Allowed);
}

#[test]
fn scope_roots_and_what_is_above_cannot_be_moved() {
    let nested = SeatbeltRequest { writable: paths(&["/w", "/w/a/b", "/tmp/c/d"]), ..plain_request() };
    let decisions = Decisions::of(&nested);
    for fixed in ["/w", "/w/a", "/w/a/b", "/tmp/c", "/tmp/c/d", "/private/tmp/c/d"] {
        decisions.check(&["file-write-unlink"], fixed, "DIRECTORY", Verdict::Denied);
    }
    decisions.check(&["file-write-unlink"], "/w/a/x", "DIRECTORY", Verdict::Allowed);
    // If the name is not a directory, there is nothing below it that could escape.
    decisions.allows(&["file-write-unlink"], "/w/a");
}

#[test]
fn denied_paths_are_unreadable_though_reads_are_open() {
    let decisions = Decisions::of(&SeatbeltRequest { read: SeatbeltRead::Open, ..full_request() });
    decisions.allows(&READS, "/Users/ada/notes.txt");
    decisions.allows(&READS, "/Users/ada/.sshrc");
    for denied in [
        "/Users/ada/.ssh",
        "/Users/ada/.ssh/id_ed25519",
        "/System/Volumes/Data/Users/ada/.ssh/id_ed25519",
        "/Users/ada/work/vault/keys/a",
        "/etc/ssl/private/key.pem",
        "/private/etc/ssl/private/key.pem",
    ] {
        decisions.denies(&READS, denied);
        decisions.denies(&WRITES, denied);
        decisions.denies(&["file-clone"], denied);
    }
}

#[test]
fn a_denied_path_cannot_be_had_by_moving_or_cloning_its_parent() {
    let decisions = Decisions::of(&full_request());
    let taken = ["file-write-unlink", "file-clone"];
    decisions.check(&taken, "/Users/ada/work/vault", "DIRECTORY", Verdict::Denied);
    decisions.check(&taken, "/Users/ada/work", "DIRECTORY", Verdict::Denied);
    decisions.check(&taken, "/Users/ada/work/src", "DIRECTORY", Verdict::Allowed);
}

#[test]
fn strict_reads_are_for_the_system_the_scope_and_the_list() {
    let decisions = Decisions::of(&full_request());
    for readable in [
        "/",
        "/usr/lib/dyld",
        "/bin/sh",
        "/System/Library/CoreServices/SystemVersion.plist",
        "/Users/ada/work/src/main.rs",
        "/tmp/session/x",
        "/Users/ada/.local/share/node/bin/node",
        "/var/tools/x",
        "/private/var/tools/x",
        "/private/etc/hosts",
    ] {
        decisions.allows(&READS, readable);
    }
    for unreadable in [
        "/Users/ada/notes.txt",
        "/Users/ada/.ssh/id_ed25519",
        "/private/etc/ssl/private/key.pem",
        "/private/etc/master.passwd",
        "/System/Volumes/Data/Users/ada/notes.txt",
        "/private/tmp/others",
        "/Library/Keychains/System.keychain",
    ] {
        decisions.denies(&READS, unreadable);
    }
}

#[test]
fn strict_reads_let_paths_be_resolved_but_not_listed() {
    let decisions = Decisions::of(&full_request());
    for above in ["/Users", "/Users/ada", "/Users/ada/.local/share", "/private/tmp", "/tmp", "/var"] {
        decisions.allows(&["file-read-metadata", "file-test-existence"], above);
        decisions.denies(&["file-read-data"], above);
    }
}

#[test]
fn a_denied_directory_stays_unseen_though_something_below_it_is_listed() {
    let read = strict(&["/Users/ada/.ssh/known_hosts"]);
    let decisions = Decisions::of(&SeatbeltRequest { read, ..full_request() });
    for denied in ["/Users/ada/.ssh", "/Users/ada/.ssh/known_hosts"] {
        decisions.denies(&READS, denied);
    }
}

#[test]
fn null_is_writable_as_the_device_that_it_is() {
    let decisions = Decisions::of(&plain_request());
    decisions.check(&["file-write-data"], "/dev/null", "CHARACTER-DEVICE", Verdict::Allowed);
    decisions.denies(&["file-write-data", "file-write-create", "file-write-unlink"], "/dev/null");
}

/// The model notices mistakes: without the literal filter the first creation is denied, and in the wrong order a
/// nested denial loses.
#[test]
fn the_model_tells_right_from_wrong() {
    let evaluate = |text: &str, operation: &str, path: &str| {
        let profile = SeatbeltProfile {
            text: text.to_owned(),
            parameters: vec![("W".to_owned(), "/w".to_owned()), ("P".to_owned(), "/w/p".to_owned())],
        };
        Evaluator::new(&profile).decide(Access { operation, path, vnode_type: "DIRECTORY" })
    };
    let everything = r#"(deny default) (allow file-write* (subpath (param "W")))"#;
    assert_eq!(evaluate(everything, "file-write-create", "/w"), Verdict::Denied);
    assert_eq!(evaluate(everything, "file-write-data", "/w/x"), Verdict::Allowed);
    let denied_too_early = r#"(deny default)
        (deny file-write* (subpath (param "P")))
        (allow file-write* (subpath (param "W")))"#;
    assert_eq!(evaluate(denied_too_early, "file-write-data", "/w/p/x"), Verdict::Allowed);
    let denied_exactly = r#"(deny default)
        (deny file-write-unlink (literal (param "P")))
        (allow file-write* (subpath (param "W")))"#;
    assert_eq!(evaluate(denied_exactly, "file-write-unlink", "/w/p"), Verdict::Disputed);
    let left_out = r#"(deny default)
        (allow file-write* (require-all (subpath (param "W")) (require-not (subpath (param "P")))))"#;
    assert_eq!(evaluate(left_out, "file-write-data", "/w/p/x"), Verdict::Denied);
    assert_eq!(evaluate(left_out, "file-write-data", "/w/q"), Verdict::Allowed);
}
