//! `read_file`: whole files and ranges, old encodings, images, and binary files.

use serde_json::json;
use testkit::Project;

use super::{Desk, numbered};

#[tokio::test]
async fn a_file_is_read_whole_with_its_lines_encoding_size_and_hash() {
    let project = Project::new("read");
    project.write("a.txt", "one\ntwo\nthree\n");
    let desk = Desk::open(project).await;
    let read = desk.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(read.text, "one\ntwo\nthree\n");
    assert_eq!(read.data["content"], "one\ntwo\nthree\n");
    assert_eq!(read.data["path"], "a.txt");
    assert_eq!(read.data["total_lines"], 3);
    assert_eq!(read.data["lines_read"], json!({"start": 1, "end": 3}));
    assert_eq!(read.data["encoding"], "UTF-8");
    assert_eq!(read.data["line_ending"], "LF");
    assert_eq!(read.data["size"], 14);
    let hash = desk.run("sha256sum a.txt | cut -d' ' -f1").await;
    assert_eq!(read.data["hash"], hash);
    assert!(read.data.get("omitted").is_none(), "{}", read.data);
}

#[tokio::test]
async fn a_range_of_lines_is_read_and_what_is_left_out_is_told() {
    let project = Project::new("range");
    project.write("a.txt", numbered(10, "line "));
    let desk = Desk::open(project).await;
    let range = |start: u64, end: u64| json!({"path": "a.txt", "start_line": start, "end_line": end});
    let read = desk.ok("read_file", range(3, 5)).await;
    assert_eq!(read.data["content"], "line 3\nline 4\nline 5\n");
    assert_eq!(read.data["lines_read"], json!({"start": 3, "end": 5}));
    assert_eq!(read.data["total_lines"], 10);
    assert_eq!(read.data["omitted"], "lines 1 to 2 are not shown; lines 6 to 10 are not shown");
    assert_eq!(
        read.text,
        "line 3\nline 4\nline 5\n[lines 1 to 2 are not shown; lines 6 to 10 are not shown]"
    );

    let clamped = desk.ok("read_file", range(9, 400)).await;
    assert_eq!(clamped.data["content"], "line 9\nline 10\n");
    assert_eq!(clamped.data["lines_read"], json!({"start": 9, "end": 10}));

    let beyond = desk.ok("read_file", range(11, 20)).await;
    assert_eq!(beyond.data["content"], "");
    assert!(beyond.data.get("lines_read").is_none(), "{}", beyond.data);
    assert_eq!(beyond.text, "[there are only 10 lines]");

    let open_ended = desk.ok("read_file", json!({"path": "a.txt", "start_line_one_indexed": 10})).await;
    assert_eq!(open_ended.data["content"], "line 10\n");
}

#[tokio::test]
async fn a_range_that_makes_no_sense_is_refused() {
    let project = Project::new("range");
    project.write("a.txt", numbered(10, "line "));
    let desk = Desk::open(project).await;
    let range = |start: u64, end: u64| json!({"path": "a.txt", "start_line": start, "end_line": end});
    let refused = desk.refused("read_file", range(5, 3), "bad_arguments").await;
    assert!(refused.text.contains("lines 5 to 3: the first is after the last"), "{}", refused.text);
    let refused = desk.refused("read_file", range(0, 3), "bad_arguments").await;
    assert!(refused.text.contains("`start_line_one_indexed` must be"), "{}", refused.text);
    desk.ok("read_file", range(3, 3)).await;
}

#[tokio::test]
async fn lines_are_numbered_on_request_as_in_the_file() {
    let project = Project::new("numbers");
    project.write("a.txt", numbered(12, "line "));
    let desk = Desk::open(project).await;
    let arguments = json!({"path": "a.txt", "start_line": 9, "end_line": 10, "line_numbers": true});
    let read = desk.ok("read_file", arguments).await;
    assert_eq!(read.data["content"], "     9\tline 9\n    10\tline 10\n");
}

#[tokio::test]
async fn old_encodings_are_read_as_text() {
    let project = Project::new("encodings");
    let utf_16 = |text: &str, big: bool| -> Vec<u8> {
        let encode = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(encode).collect()
    };
    project.write("le.txt", utf_16("grün\r\nπ\r\n", false));
    project.write("be.txt", utf_16("grün\n", true));
    project.write("old.txt", b"gr\xFCn \x80 5\n");
    project.write("bom.txt", b"\xEF\xBB\xBFgr\xC3\xBCn\n");
    let desk = Desk::open(project).await;
    for (name, content, encoding, ending) in [
        ("le.txt", "grün\r\nπ\r\n", "UTF-16LE", "CRLF"),
        ("be.txt", "grün\n", "UTF-16BE", "LF"),
        ("old.txt", "grün € 5\n", "windows-1252", "LF"),
        ("bom.txt", "grün\n", "UTF-8", "LF"),
    ] {
        let read = desk.ok("read_file", json!({"path": name})).await;
        assert_eq!(read.data["content"], content, "{name}");
        assert_eq!(read.data["encoding"], encoding, "{name}");
        assert_eq!(read.data["line_ending"], ending, "{name}");
    }
}

#[tokio::test]
async fn an_empty_file_is_told_to_be_empty() {
    let project = Project::new("empty");
    project.write("nothing", "");
    let desk = Desk::open(project).await;
    let read = desk.ok("read_file", json!({"path": "nothing"})).await;
    assert_eq!(read.text, "[the file is empty]");
    assert_eq!(read.data["content"], "");
    assert_eq!(read.data["total_lines"], 0);
    assert_eq!(read.data["line_ending"], "none");
}

#[tokio::test]
async fn a_picture_comes_as_a_picture() {
    let project = Project::new("picture");
    let picture = b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\0\x01";
    project.write("dot.png", picture);
    let desk = Desk::open(project).await;
    let read = desk.ok("read_file", json!({"path": "dot.png"})).await;
    let image = &read.result["content"][1];
    assert_eq!(image["type"], "image");
    assert_eq!(image["mimeType"], "image/png");
    assert_eq!(image["data"], "iVBORw0KGgoAAAANSUhEUgAAAAE=");
    assert_eq!(read.data["mime_type"], "image/png");
    assert_eq!(read.data["size"], picture.len());
    assert_eq!(read.text, "dot.png: image/png, 20 bytes");
}

#[tokio::test]
async fn what_has_no_text_is_named_with_what_can_be_done() {
    let project = Project::new("binary");
    project.write("paper.pdf", "%PDF-1.7\n% more\n");
    project.write("data.gz", b"\x1F\x8B\x08\0\0\0\0\0");
    project.write("data.bin", b"\x01\x02\0\x03\xFF");
    let desk = Desk::open(project).await;
    for (name, kind, hint) in [
        ("paper.pdf", "a PDF document", "pdftotext"),
        ("data.gz", "an archive or compressed file (application/gzip)", "tar tf"),
        ("data.bin", "binary data", "xxd"),
    ] {
        let refused = desk.refused("read_file", json!({"path": name}), "binary").await;
        assert!(refused.text.contains(kind), "{}", refused.text);
        assert!(refused.data["hint"].as_str().unwrap().contains(hint), "{}", refused.data);
        assert_eq!(refused.data["path"], name);
    }
}

#[tokio::test]
async fn a_missing_file_is_refused_with_names_that_look_like_it() {
    let project = Project::new("missing");
    project.write("src/settings.rs", "x\n");
    let desk = Desk::open(project).await;
    let refused = desk.refused("read_file", json!({"path": "src/setings.rs"}), "not_found").await;
    assert_eq!(refused.data["hint"], "there is `src/settings.rs`");
    desk.refused("read_file", json!({"path": "src"}), "is_a_directory").await;
    desk.refused("read_file", json!({"path": ""}), "bad_path").await;
    desk.ok("read_file", json!({"path": "src/settings.rs"})).await;
}

#[tokio::test]
async fn a_long_file_is_shown_in_part_unless_all_of_it_is_wanted() {
    let project = Project::new("long");
    let line = format!("{}\n", "x".repeat(99));
    project.write("long.txt", line.repeat(3000));
    let desk = Desk::open(project).await;
    let read = desk.ok("read_file", json!({"path": "long.txt"})).await;
    assert_eq!(read.data["total_lines"], 3000);
    assert_eq!(read.data["lines_read"], json!({"start": 1, "end": 1310}));
    assert_eq!(read.data["omitted"], "lines 1311 to 3000 are not shown");
    let all = desk.ok("read_file", json!({"path": "long.txt", "should_read_entire_file": true})).await;
    assert_eq!(all.data["lines_read"], json!({"start": 1, "end": 3000}));
    assert!(all.data.get("omitted").is_none());
}

#[tokio::test]
async fn lines_of_a_file_that_is_too_long_to_be_held_can_be_read() {
    let project = Project::new("huge");
    project.write("huge.log", numbered(300_000, &" ".repeat(60)));
    let desk = Desk::open(project).await;
    let arguments = json!({"path": "huge.log", "start_line": 290_000, "end_line": 290_001});
    let read = desk.ok("read_file", arguments).await;
    assert_eq!(read.data["content"], format!("{indent}290000\n{indent}290001\n", indent = " ".repeat(60)));
    assert_eq!(read.data["lines_read"], json!({"start": 290_000, "end": 290_001}));
    assert_eq!(read.data["size"], desk.project.bytes("huge.log").len());
}

#[tokio::test]
async fn paths_are_relative_absolute_or_uris_and_never_outside() {
    let project = Project::new("paths");
    project.write("src/a.txt", "inside\n");
    let outside = Project::new("outside");
    outside.write("src/a.txt", "outside\n");
    let desk = Desk::open(project).await;
    std::os::unix::fs::symlink(outside.join("src/a.txt"), desk.project.join("link")).unwrap();
    std::os::unix::fs::symlink("src/a.txt", desk.project.join("inner-link")).unwrap();
    let inside = [
        "src/a.txt".to_owned(),
        "./src/../src/a.txt".to_owned(),
        "inner-link".to_owned(),
        desk.project.join("src/a.txt").display().to_string(),
        desk.project.uri("src/a.txt"),
    ];
    for path in inside {
        let read = desk.ok("read_file", json!({"path": path})).await;
        assert_eq!(read.data["content"], "inside\n", "{path}");
    }
    for path in [
        outside.join("src/a.txt").display().to_string(),
        outside.uri("src/a.txt"),
        "../../etc/passwd".to_owned(),
        "/etc/passwd".to_owned(),
        "link".to_owned(),
    ] {
        let refused = desk.refused("read_file", json!({"path": path}), "outside_workspace").await;
        assert!(!refused.text.contains("outside\n"), "{}", refused.text);
    }
    let absolute = outside.join("src/a.txt");
    let refused = desk.refused("read_file", json!({"path": absolute}), "outside_workspace").await;
    assert!(refused.data["hint"].as_str().unwrap().contains("`src/a.txt` exists in it"), "{}", refused.data);
}
