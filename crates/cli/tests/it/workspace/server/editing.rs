//! `edit_file`: new code with markers for the lines that stay, and the guards against accidents.

use serde_json::json;
use testkit::Project;

use super::{Desk, numbered};

const RUST: &str =
    "fn first() {\n    one();\n}\n\nfn second() {\n    two();\n}\n\nfn third() {\n    three();\n}\n";

async fn desk_with(name: &str, contents: &str) -> Desk {
    let project = Project::new("edit");
    project.write(name, contents);
    Desk::open(project).await
}

#[tokio::test]
async fn markers_keep_what_is_there_and_the_rest_changes() {
    let desk = desk_with("a.rs", RUST).await;
    let edit =
        "// ... existing code ...\nfn second() {\n    zwei();\n    two();\n}\n// ... existing code ...\n";
    let edited = desk.ok("edit_file", json!({"path": "a.rs", "code_edit": edit})).await;
    assert_eq!(desk.project.text("a.rs"), RUST.replace("    two();", "    zwei();\n    two();"));
    assert_eq!(edited.data["changed_range"], json!({"start": 6, "end": 6}));
    assert_eq!(edited.data["lines_added"], 1);
    assert_eq!(edited.data["lines_removed"], 0);
    assert!(edited.data["diff"].as_str().unwrap().contains("+    zwei();\n"));
    assert!(edited.text.starts_with("edited a.rs, line 6 (+1 -0)\n"), "{}", edited.text);
}

#[tokio::test]
async fn markers_are_understood_in_the_comment_styles_of_many_languages() {
    for (name, open, close) in [
        ("a.rs", "// ...", "..."),
        ("a.py", "# ...", "..."),
        ("a.sql", "-- ...", "..."),
        ("a.css", "/* ...", "... */"),
        ("a.html", "<!-- ...", "... -->"),
        ("a.jsx", "{/* ...", "... */}"),
        ("a.tex", "% ...", "..."),
        ("a.ini", "; ...", "..."),
    ] {
        let desk = desk_with(name, "alpha\nbeta\ngamma\ndelta\n").await;
        let marker = format!("{open} existing code {close}");
        let edit = format!("{marker}\nbeta\nnew\ngamma\n{marker}\n");
        desk.ok("edit_file", json!({"target_file": name, "code_edit": edit})).await;
        assert_eq!(desk.project.text(name), "alpha\nbeta\nnew\ngamma\ndelta\n", "{marker}");
    }
}

#[tokio::test]
async fn the_doubled_comment_sign_of_lisp_marks_what_stays() {
    let desk = desk_with("a.el", "alpha\nbeta\ngamma\n").await;
    let edit = "alpha\nnew\nbeta\n;; ... existing code ...\n";
    desk.ok("edit_file", json!({"path": "a.el", "code_edit": edit})).await;
    assert_eq!(desk.project.text("a.el"), "alpha\nnew\nbeta\ngamma\n");
}

#[tokio::test]
async fn several_places_are_edited_at_once_and_crlf_is_kept() {
    let desk = desk_with("a.py", "a = 1\r\nb = 2\r\nc = 3\r\nd = 4\r\ne = 5\r\n").await;
    let edit = "# ... existing code ...\na = 1\nb = 20\nc = 3\n# ... existing code ...\nd = 4\ne = 50\n";
    desk.ok("edit_file", json!({"path": "a.py", "code_edit": edit})).await;
    assert_eq!(desk.project.text("a.py"), "a = 1\r\nb = 20\r\nc = 3\r\nd = 4\r\ne = 50\r\n");
}

#[tokio::test]
async fn a_file_is_not_overwritten_by_a_fragment_without_markers() {
    let desk = desk_with("a.rs", RUST).await;
    let edit = |full: bool| json!({"path": "a.rs", "code_edit": "fn only() {}\n", "full_replace": full});
    let refused = desk.refused("edit_file", edit(false), "overwrite_guard").await;
    assert!(refused.text.contains("full_replace"), "{}", refused.text);
    assert_eq!(desk.project.text("a.rs"), RUST);
    desk.ok("edit_file", edit(true)).await;
    assert_eq!(desk.project.text("a.rs"), "fn only() {}\n");
}

#[tokio::test]
async fn markers_need_a_file_and_a_new_file_needs_none() {
    let desk = Desk::empty().await;
    let edit = json!({"path": "new/a.rs", "code_edit": "// ... existing code ...\nfn a() {}\n"});
    desk.refused("edit_file", edit, "phantom_base").await;
    assert!(!desk.project.has("new"));
    let made = desk.ok("edit_file", json!({"path": "new/a.rs", "code_edit": "fn a() {}\n"})).await;
    assert_eq!(made.data["created"], true);
    assert_eq!(desk.project.text("new/a.rs"), "fn a() {}\n");
}

#[tokio::test]
async fn a_long_file_does_not_lose_most_of_its_lines_by_accident() {
    let long = numbered(60, "line ");
    let desk = desk_with("long.txt", &long).await;
    let edit = "line 1\nline 60\n# ... existing code ...\n";
    let arguments = |allow: bool| json!({"path": "long.txt", "code_edit": edit, "allow_shrink": allow});
    let refused = desk.refused("edit_file", arguments(false), "collapse_guard").await;
    assert!(refused.text.contains("2 of 60 lines"), "{}", refused.text);
    assert_eq!(desk.project.text("long.txt"), long);
    desk.ok("edit_file", arguments(true)).await;
    assert_eq!(desk.project.text("long.txt"), "line 1\nline 60\n");

    let desk = desk_with("long.txt", &long).await;
    let replace = json!({"path": "long.txt", "code_edit": "short\n", "full_replace": true});
    desk.refused("edit_file", replace, "collapse_guard").await;
}

#[tokio::test]
async fn an_edit_that_fits_several_places_is_refused_with_all_of_them() {
    let repeated = "start\n  if x {\n    old\n  }\nmiddle\n  if x {\n    old\n  }\nend\n";
    let desk = desk_with("a.txt", repeated).await;
    let edit = "// ... existing code ...\n  if x {\n    new\n  }\n// ... existing code ...\n";
    let refused =
        desk.refused("edit_file", json!({"path": "a.txt", "code_edit": edit}), "ambiguous_anchor").await;
    for place in ["line 2", "line 6"] {
        assert!(refused.text.contains(place), "{}", refused.text);
    }
    assert_eq!(desk.project.text("a.txt"), repeated);

    let edit = "// ... existing code ...\nmiddle\n  if x {\n    new\n  }\nend\n";
    desk.ok("edit_file", json!({"path": "a.txt", "code_edit": edit})).await;
    assert_eq!(desk.project.text("a.txt"), repeated.replace("old\n  }\nend", "new\n  }\nend"));
}

#[tokio::test]
async fn an_edit_that_fits_nowhere_is_refused_with_what_looks_like_it() {
    let desk = desk_with("a.rs", RUST).await;
    let edit = "// ... existing code ...\nfn secnd() {\n    zwei();\n// ... existing code ...\n";
    let refused =
        desk.refused("edit_file", json!({"path": "a.rs", "code_edit": edit}), "anchor_not_found").await;
    assert!(refused.text.contains("line 5: `fn second() {`"), "{}", refused.text);
    assert_eq!(desk.project.text("a.rs"), RUST);
}

#[tokio::test]
async fn a_dry_run_and_a_wrong_hash_leave_the_file_alone() {
    let desk = desk_with("a.rs", RUST).await;
    let edit =
        "// ... existing code ...\nfn second() {\n    zwei();\n}\n\nfn third() {\n// ... existing code ...\n";
    let arguments = json!({"path": "a.rs", "code_edit": edit, "dry_run": true, "instructions": "why"});
    let shown = desk.ok("edit_file", arguments).await;
    assert!(shown.data["diff"].as_str().unwrap().contains("-    two();\n+    zwei();\n"), "{}", shown.data);
    let arguments = json!({"path": "a.rs", "code_edit": edit, "expected_hash": "0".repeat(64)});
    desk.refused("edit_file", arguments, "changed_since_read").await;
    assert_eq!(desk.project.text("a.rs"), RUST);
    desk.ok("edit_file", json!({"path": "a.rs", "code_edit": edit})).await;
    assert_eq!(desk.project.text("a.rs"), RUST.replace("two", "zwei"));
}
