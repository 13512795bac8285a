//! Reading and applying patches as tools and agents write them.

use proptest::prelude::*;
use similar::TextDiff;

use super::*;

const FILE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n";

fn only(patch: &str) -> FilePatch {
    let mut files = parse(patch).unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

fn apply(patch: &str, original: &str) -> Result<Applied, PatchError> {
    only(&format!("--- a/x\n+++ b/x\n{patch}")).apply(original)
}

fn paths(file: &FilePatch) -> (Option<&str>, Option<&str>) {
    (file.old_path.as_deref(), file.new_path.as_deref())
}

#[test]
fn a_hunk_goes_where_its_header_says() {
    let applied = apply("@@ -2,3 +2,3 @@ section\n two\n-three\n+3\n four\n", FILE).unwrap();
    assert_eq!(applied, Applied { text: FILE.replace("three", "3"), offsets: vec![0] });
    let doubled = FILE.repeat(2);
    let second = apply("@@ -10,3 +10,3 @@\n two\n-three\n+3\n four\n", &doubled).unwrap();
    assert_eq!(second.text, format!("{FILE}{}", FILE.replace("three", "3")));
}

#[test]
fn a_hunk_elsewhere_is_found_and_its_offset_told() {
    let applied = apply("@@ -1,3 +1,3 @@\n five\n-six\n+6\n seven\n@@ -1 +1 @@\n-eight\n+8\n", FILE).unwrap();
    assert_eq!(applied.text, FILE.replace("six", "6").replace("eight", "8"));
    assert_eq!(applied.offsets, [4, 7]);
}

#[test]
fn several_places_are_an_error_with_their_lines() {
    let error = apply("@@ -4 +4 @@\n-two\n+2\n", &FILE.repeat(2)).unwrap_err();
    assert_eq!(error, PatchError::Ambiguous { hunk: 1, lines: vec![2, 10] });
    assert!(error.to_string().contains("lines 2, 10"), "{error}");
}

#[test]
fn a_hunk_that_does_not_fit_shows_where() {
    let error = apply("@@ -2,3 +2,3 @@\n two\n-thre\n+3\n four\n", FILE).unwrap_err();
    assert_eq!(error.code(), "patch_mismatch");
    let message = error.to_string();
    assert!(message.contains("`thre` is expected at line 3, where the file has `three`"), "{message}");
    let behind = apply("@@ -8,2 +8,2 @@\n eight\n-nine\n+9\n", FILE).unwrap_err().to_string();
    assert!(behind.contains("at line 9, where the file ends"), "{behind}");
}

#[test]
fn hunks_do_not_go_back() {
    let error = apply("@@ -6 +6 @@\n-six\n+6\n@@ -2 +2 @@\n-two\n+2\n", FILE).unwrap_err();
    assert_eq!(error.code(), "patch_mismatch");
}

#[test]
fn only_trailing_blanks_are_forgiven() {
    assert_eq!(apply("@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a  \nb\t\n").unwrap().text, "a  \nc\n");
    assert_eq!(apply("@@ -1 +1 @@\n-b\n+c\n", " b\n").unwrap_err().code(), "patch_mismatch");
}

#[test]
fn counts_and_numbers_may_be_wrong_or_missing() {
    for header in ["@@ -2,9 +2,1 @@", "@@ -2 +2 @@", "@@", "@@ ... @@", "@@ -x,y +z @@", "@@ fn main() {"] {
        let applied = apply(&format!("{header}\n two\n-three\n+3\n four\n\n"), FILE).unwrap();
        assert_eq!(applied.text, FILE.replace("three", "3"), "{header}");
    }
}

#[test]
fn empty_lines_are_context_or_spacing_as_the_counts_say() {
    let file = "a\n\nb\n\nc\n";
    let counted = only("--- x\n+++ x\n@@ -1,4 +1,4 @@\n-a\n+A\n\n b\n\n");
    assert_eq!(counted.hunks[0].counts(), (4, 4));
    assert_eq!(counted.apply(file).unwrap().text, "A\n\nb\n\nc\n");
    let spaced = only("--- x\n+++ x\n@@ -1,3 +1,3 @@\n-a\n+A\n\n b\n\n\n");
    assert_eq!(spaced.hunks[0].counts(), (3, 3));
}

#[test]
fn the_end_of_the_file_follows_the_patch() {
    let removed = "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n";
    assert_eq!(apply(removed, "a\nb\n").unwrap().text, "a\nb");
    let added = "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n";
    assert_eq!(apply(added, "a\nb").unwrap().text, "a\nb\n");
    assert_eq!(apply("@@ -2 +2 @@\n-b\n+c\n", "a\nb").unwrap().text, "a\nc", "a patch that does not say");
}

#[test]
fn line_endings_are_those_of_the_file() {
    let crlf = "a\r\nb\r\nc\r\n";
    assert_eq!(apply("@@ -1,2 +1,2 @@\n a\n-b\n+B\n", crlf).unwrap().text, "a\r\nB\r\nc\r\n");
    let carried = "--- a/x\r\n+++ b/x\r\n@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+B\r\n";
    assert_eq!(only(carried).apply("a\nb\n").unwrap().text, "a\nB\n", "the patch was sent with CRLF");
    let changing = "@@ -2 +2 @@\n-b\r\n+b\n";
    assert_eq!(apply(changing, crlf).unwrap().text, "a\r\nb\nc\r\n", "the patch changes endings");
}

#[test]
fn the_headers_of_git_are_understood() {
    let patch = "From: someone\n\ndiff --git a/old name b/new name\nsimilarity index 90%\nrename from old name\nrename to new name\n\
        --- a/old name\n+++ b/new name\n@@ -1 +1 @@\n-a\n+b\n\
        diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n\
        diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n\
        diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
        -- \n2.40.0\n";
    let files = parse(patch).unwrap();
    let names: Vec<_> = files.iter().map(|file| (paths(file), file.is_rename, file.hunks.len())).collect();
    assert_eq!(
        names,
        [
            ((Some("old name"), Some("new name")), true, 1),
            ((Some("run.sh"), Some("run.sh")), false, 0),
            ((None, Some("empty")), false, 0),
            ((Some("gone"), None), false, 1),
        ]
    );
    assert_eq!(files[1].executable, Some(true));
    assert_eq!(files[3].apply("x\n").unwrap().text, "");
}

#[test]
fn files_without_git_headers_follow_one_another() {
    let patch = "--- x\t2024-01-01\n+++ x\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ new\n@@ -0,0 +1,2 @@\n+c\n+d\n";
    let files = parse(patch).unwrap();
    assert_eq!(files.iter().map(paths).collect::<Vec<_>>(), [(Some("x"), Some("x")), (None, Some("new"))]);
    assert_eq!(files[1].apply("").unwrap().text, "c\nd\n");
}

#[test]
fn removed_dashes_are_not_a_file_header() {
    let applied = apply("@@ -1,3 +1,3 @@\n--- a\n+++ b\n c\n d\n", "-- a\nc\nd\n").unwrap();
    assert_eq!(applied.text, "++ b\nc\nd\n");
    let unclear =
        parse("--- x\n+++ x\n@@ -1,9 +1,9 @@\n a\n--- y\n+++ y\n@@ -1 +1 @@\n-a\n+b\n").unwrap_err();
    assert_eq!(unclear.code(), "patch_malformed");
    assert!(unclear.to_string().starts_with("line 5 of the patch"), "{unclear}");
}

#[test]
fn insertions_need_a_place() {
    assert_eq!(apply("@@ -2,0 +3 @@\n+new\n", "a\nb\nc\n").unwrap().text, "a\nb\nnew\nc\n");
    assert_eq!(apply("@@\n+new\n", "a\n").unwrap_err().code(), "patch_without_place");
    assert_eq!(apply("@@ -99,0 +99 @@\n+new\n", "a\n").unwrap_err().code(), "patch_without_place");
    assert_eq!(apply("@@\n+new\n", "").unwrap().text, "new\n");
}

#[test]
fn what_cannot_be_read_says_why() {
    let code = |patch: &str| parse(patch).unwrap_err().code();
    assert_eq!(code(""), "patch_malformed");
    assert_eq!(code("hello\n"), "patch_malformed");
    assert_eq!(code("@@ -1 +1 @@\n-a\n+b\n"), "patch_malformed");
    assert_eq!(code("--- x\n+++ x\n@@ -1 +1 @@\n"), "patch_malformed");
    assert_eq!(code("--- x\n+++ x\n@@ -1,2 +1,2 @@\n-a\n?b\n"), "patch_malformed");
    let binary = "diff --git a/p.png b/p.png\nindex 1..2 100644\nBinary files a/p.png and b/p.png differ\n";
    assert_eq!(parse(binary).unwrap_err(), PatchError::Binary { path: "p.png".into() });
}

#[test]
fn the_envelope_is_read_too() {
    let patch = "*** Begin Patch\n*** Update File: src/x.py\n*** Move to: src/y.py\n@@ class B:\n def f():\n-    one\n+    two\n\n\
        *** Add File: new.txt\n+a\n+b\n*** Delete File: old.txt\n*** End Patch\n";
    let files = parse(patch).unwrap();
    let names: Vec<_> = files.iter().map(|file| (paths(file), file.is_rename)).collect();
    assert_eq!(
        names,
        [
            ((Some("src/x.py"), Some("src/y.py")), true),
            ((None, Some("new.txt")), false),
            ((Some("old.txt"), None), false),
        ]
    );
    let file = "class A:\ndef f():\n    one\nclass B:\ndef f():\n    one\n";
    let applied = files[0].apply(file).unwrap();
    assert_eq!(applied.text, "class A:\ndef f():\n    one\nclass B:\ndef f():\n    two\n");
    assert_eq!(files[1].apply("").unwrap().text, "a\nb\n");
}

#[test]
fn the_envelope_is_exact_too() {
    let update = |hunk: &str| only(&format!("*** Begin Patch\n*** Update File: x\n{hunk}*** End Patch"));
    let ambiguous = update("@@\n-a\n+b\n").apply("a\na\n").unwrap_err();
    assert_eq!(ambiguous.code(), "patch_ambiguous");
    let at_end = update("@@\n-a\n+b\n*** End of File\n").apply("a\na\n").unwrap();
    assert_eq!(at_end.text, "a\nb\n");
    assert_eq!(update("@@ a\n+b\n").apply("a\nc\n").unwrap().text, "a\nb\nc\n");
    assert_eq!(parse("*** Begin Patch\n*** End Patch\n").unwrap_err().code(), "patch_malformed");
    assert_eq!(
        parse("*** Begin Patch\n*** Update File: x\n*** End Patch\n").unwrap_err().code(),
        "patch_malformed"
    );
}

fn texts() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "",
        " a",
        "-- a",
        "++ b",
        "@@",
        "+a",
        "\\ x",
        "diff --git ",
    ]);
    let lines = prop::collection::vec(line, 0..24);
    (lines, any::<bool>()).prop_map(|(lines, ends)| {
        let text = lines.join("\n");
        if ends && !text.is_empty() { text + "\n" } else { text }
    })
}

fn patch_like() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "--- a/x",
        "+++ b/x",
        "@@ -1,2 +1 @@",
        "@@ -4294967295 +1 @@",
        "@@",
        " a",
        "-a",
        "+b",
        "",
        "\\ No newline",
        "diff --git a/x b/x",
        "rename from \"x",
        "new file mode 1",
        "deleted file mode 1",
        "*** Begin Patch",
        "*** Update File: x",
        "*** Add File: y",
        "*** Move to: z",
        "*** End of File",
        "text",
    ]);
    prop::collection::vec(line, 0..14).prop_map(|lines| format!("--- x\n+++ x\n{}", lines.join("\n")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn any_text_is_read_or_refused(patch in patch_like(), original in texts(), skipped in 0..3usize) {
        let patch = patch.splitn(skipped + 1, '\n').last().unwrap_or_default();
        for file in parse(patch).unwrap_or_default() {
            let _ = file.apply(&original);
        }
    }

    #[test]
    fn a_diff_applied_gives_the_new_text(old in texts(), new in texts(), context in 0..4usize) {
        let diff = TextDiff::from_lines(&old, &new);
        let patch = diff.unified_diff().context_radius(context).header("a/x", "b/x").to_string();
        if !patch.is_empty() {
            let applied = only(&patch).apply(&old).unwrap();
            prop_assert_eq!(&applied.text, &new, "{}", patch);
            prop_assert!(applied.offsets.iter().all(|offset| *offset == 0));
        }
    }
}
