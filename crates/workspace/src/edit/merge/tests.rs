//! Single cases of the merge.

use super::*;

const FILE: &str = "\
use std::fmt;

fn first() {
    one();
}

fn second() {
    two();
}
";

fn error(original: &str, edit: &str) -> MergeError {
    merge(original, edit).unwrap_err()
}

#[test]
fn a_segment_replaces_from_its_first_to_its_last_line() {
    let edit = "// ... existing code ...\nfn first() {\n    uno();\n    due();\n}\n\nfn second() {\n// ... existing code ...\n";
    let merged = merge(FILE, edit).unwrap();
    assert_eq!(merged, FILE.replace("    one();\n", "    uno();\n    due();\n"));
}

#[test]
fn without_a_marker_the_edit_reaches_to_the_edge_of_the_file() {
    let start = merge(FILE, "use std::io;\n\nfn first() {\n// ... existing code ...").unwrap();
    assert_eq!(start, FILE.replace("std::fmt", "std::io"));
    let end = merge(FILE, "// ... existing code ...\n    two();\n    three();\n}").unwrap();
    assert_eq!(end, FILE.replace("    two();\n", "    two();\n    three();\n"));
}

#[test]
fn a_segment_of_one_line_only_says_where_the_next_one_is() {
    let old = "class A:\n    x = 1\n    y = 2\nclass B:\n    x = 1\n    y = 2\n";
    let edit = "# ... existing code ...\nclass B:\n# ... existing code ...\n    x = 1\n    y = 3\n";
    assert_eq!(merge(old, edit).unwrap(), "class A:\n    x = 1\n    y = 2\nclass B:\n    x = 1\n    y = 3\n");
}

#[test]
fn what_is_new_at_an_edge_is_added_there() {
    let appended = merge(FILE, "// ... existing code ...\n\nfn third() {\n    three();\n}\n").unwrap();
    assert_eq!(appended, format!("{FILE}\nfn third() {{\n    three();\n}}\n"));
    let apart = merge("a\n\n", "# ... existing code ...\n\nb\n").unwrap();
    assert_eq!(apart, "a\n\nb\n", "a blank line is there");
    let prepended = merge(FILE, "//! About.\n// ... existing code ...\n").unwrap();
    assert_eq!(prepended, format!("//! About.\n{FILE}"));
}

#[test]
fn what_looks_like_a_change_at_an_edge_is_not_added() {
    let error = error(FILE, "// ... existing code ...\nfn second(x: u8) {\n    two();\n}\n");
    assert_eq!(error.code(), "one_sided_anchor");
    assert!(error.to_string().contains("line 7: `fn second() {`"), "{error}");
}

#[test]
fn a_closing_line_is_settled_by_the_lines_before_it() {
    let edit =
        "// ... existing code ...\nfn first() {\n    zero();\n    one();\n}\n// ... existing code ...\n";
    assert_eq!(merge(FILE, edit).unwrap(), FILE.replace("    one();\n", "    zero();\n    one();\n"));
}

#[test]
fn a_closing_line_alone_is_ambiguous() {
    let error =
        error(FILE, "// ... existing code ...\nfn first() {\n    uno();\n}\n// ... existing code ...\n");
    assert_eq!(error.code(), "ambiguous_anchor");
    let MergeError::AmbiguousAnchor { places, instead, .. } = &error else { unreachable!("{error}") };
    assert_eq!(places.iter().map(|place| place.line).collect::<Vec<_>>(), [5, 9]);
    assert_eq!(instead.as_ref().map(|place| place.line), Some(7));
    let message = error.to_string();
    assert!(
        message.contains("its last line `}`") && message.contains("line 7: `fn second() {`"),
        "{message}"
    );
}

#[test]
fn a_first_line_that_repeats_is_ambiguous() {
    let old = "a\nx\nb\na\nx\nc\n";
    let error = error(old, "# ... existing code ...\na\nX\nc\n# ... existing code ...\n");
    assert_eq!(error.code(), "ambiguous_anchor");
    assert!(error.to_string().contains("its first line `a`"), "{error}");
}

#[test]
fn a_segment_without_a_place_names_lines_that_resemble_it() {
    let error = error(FILE, "# ... existing code ...\n  fn second() {\n  new\n# ... existing code ...\n");
    assert_eq!(error.code(), "anchor_not_found");
    assert!(error.to_string().contains("line 7: `fn second() {`"), "{error}");
}

#[test]
fn one_end_alone_is_not_enough() {
    let edit = "# ... existing code ...\n    one();\n    new();\n# ... existing code ...\n";
    let error = error(FILE, edit);
    assert_eq!(error.code(), "one_sided_anchor");
    assert!(error.to_string().contains("that is line 5: `}`"), "{error}");
}

#[test]
fn the_end_that_is_there_is_told_where_most_lines_agree() {
    let edit = "# ... existing code ...\nfn second(x: u8) {\n    two();\n}\n# ... existing code ...\n";
    let message = error(FILE, edit).to_string();
    assert!(message.contains("it holds line 9: `}`"), "{message}");
    assert!(message.contains("that is line 7: `fn second() {`"), "{message}");
}

#[test]
fn segments_stand_in_the_order_of_the_file() {
    let edit =
        "# ... existing code ...\n    two();\n# ... existing code ...\n    one();\n# ... existing code ...";
    let error = error(FILE, edit);
    assert_eq!(error.code(), "anchor_order");
    assert!(error.to_string().contains("line 4: `    one();`"), "{error}");
}

#[test]
fn markers_alone_and_no_markers_are_told_apart() {
    assert_eq!(error(FILE, "// ... existing code ...\n\n# ... existing code ...\n"), MergeError::OnlyMarkers);
    assert_eq!(error(FILE, "fn first() {}\n"), MergeError::NoMarkers);
    assert_eq!(error(FILE, ""), MergeError::NoMarkers);
}

#[test]
fn line_endings_and_the_end_of_the_file_stay() {
    let old = "a\r\nb\r\nc\nd\r\ne";
    let edit = "# ... existing code ...\nb\nX\nd\n# ... existing code ...\n";
    assert_eq!(merge(old, edit).unwrap(), "a\r\nb\r\nX\r\nd\r\ne");
    let at_end = "# ... existing code ...\nd\ne\nf\n";
    assert_eq!(merge(old, at_end).unwrap(), "a\r\nb\r\nc\nd\r\ne\r\nf");
    assert_eq!(merge("a\nb\n", "# ... existing code ...\nb\nc").unwrap(), "a\nb\nc\n");
}

#[test]
fn trailing_blanks_do_not_hide_a_line_and_are_kept() {
    let old = "a\nb  \nc\t\nd\n";
    let edit = "# ... existing code ...\nb\nX\nc\n# ... existing code ...";
    assert_eq!(merge(old, edit).unwrap(), "a\nb  \nX\nc\t\nd\n");
    let exact = "b\nb \n";
    assert_eq!(
        merge(exact, "# ... existing code ...\nb \nX\n").unwrap(),
        "b\nb \nX\n",
        "exactly comes first"
    );
}

#[test]
fn blank_lines_next_to_a_marker_are_for_the_eye() {
    let edit =
        "// ... existing code ...\n\n\nfn first() {\n    zero();\n    one();\n\n// ... existing code ...\n";
    assert_eq!(merge(FILE, edit).unwrap(), FILE.replace("    one();\n", "    zero();\n    one();\n"));
}

#[test]
fn a_file_may_be_empty() {
    assert_eq!(merge("", "a\n# ... existing code ...\n").unwrap(), "a\n");
    assert_eq!(error("", "# ... existing code ...\na\n# ... existing code ...\n").code(), "anchor_not_found");
}

#[test]
fn messages_are_bounded() {
    let old = format!("{}\n", "x".repeat(5000)).repeat(40);
    let edit = format!(
        "# ... existing code ...\n{}\nnew\n{}\n# ... existing code ...\n",
        "x".repeat(5000),
        "x".repeat(5000)
    );
    let message = error(&old, &edit).to_string();
    assert!(message.len() < 2500, "{}", message.len());
}
