//! The many spellings of a path, none of which may lead outside.

use super::*;

#[test]
fn every_honest_spelling_of_a_file_reaches_it() {
    let ground = Ground::new();
    let absolute = ground.inside("d/b.txt").display().to_string();
    for spelling in [
        "d/b.txt",
        "./d/b.txt",
        "d/./b.txt",
        "d//b.txt",
        "d/e/../b.txt",
        "./././d/e/../../d/b.txt",
        &absolute,
        &format!("file://{absolute}"),
        &format!("file://localhost{absolute}"),
        &format!("file://{}", absolute.replace("b.txt", "%62.txt")),
    ] {
        assert_eq!(ground.read(spelling).unwrap(), "b", "{spelling}");
    }
    assert_eq!(ground.read("..foo").unwrap(), "dots", "a name may begin with dots");
    let root = ground.inside("").display().to_string();
    for spelling in [".", "./", "d/..", &root, root.trim_end_matches('/')] {
        assert!(ground.workspace.open_directory(&ground.path(spelling)).is_ok(), "{spelling}");
    }
    assert!(ground.workspace.open_directory(&ground.path("d/")).is_ok());
    assert_eq!(ground.code("a.txt/"), "not_a_directory");
}

#[test]
fn no_spelling_leads_outside() {
    let ground = Ground::new();
    let base = ground.base.display().to_string();
    for spelling in [
        "..",
        "../outside/secret",
        "./../outside/secret",
        "d/../../outside/secret",
        "d/e/../../../outside/secret",
        "..//outside/secret",
        "../ws-evil/a.txt",
        "../ws/../outside/secret",
        "../../../../../../../../../../../../etc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd",
        "/dev/fd/0",
        &format!("{base}/outside/secret"),
        &format!("{base}/ws/../outside/secret"),
        &format!("{base}/ws/d/../../outside/secret"),
        &format!("{base}/ws-evil/a.txt"),
        &format!("{base}/WS/a.txt"),
        &format!("file://{base}/outside/secret"),
        &format!("file://localhost{base}/ws-evil/a.txt"),
        "file:///etc/passwd",
        "file:///",
    ] {
        assert_eq!(ground.code(spelling), "outside_workspace", "{spelling}");
        if let Ok(path) = ground.workspace.path(spelling) {
            assert!(ground.workspace.stat(&path).is_err(), "{spelling}");
            assert!(!ground.workspace.exists(&path), "{spelling}");
            assert!(ground.workspace.open_directory(&path).is_err(), "{spelling}");
        }
    }
    assert_eq!(ground.read("a.txt").unwrap(), "a");
}

#[test]
fn a_uri_that_is_odd_is_refused_before_anything_is_opened() {
    let ground = Ground::new();
    let root = ground.inside("").display().to_string();
    let root = root.trim_end_matches('/');
    for uri in [
        format!("file://{root}/../outside/secret"),
        format!("file://{root}/./a.txt"),
        format!("file://{root}/%2e%2e/outside/secret"),
        format!("file://{root}/%2E%2e/outside/secret"),
        format!("file://{root}/.%2e/outside/secret"),
        format!("file://{root}/%252e%252e/outside/secret"),
        format!("file://{root}/%252e%252e%252foutside%252fsecret"),
        format!("file://{root}/..%2foutside%2fsecret"),
        format!("file://{root}/d%2fb.txt"),
        format!("file://{root}/a%00.txt"),
        format!("file://{root}/a%2500.txt"),
        format!("file://{root}/a.txt%"),
        format!("file://{root}/a.txt%2"),
        format!("file://{root}/a%zz.txt"),
        format!("file://{root}/a.txt?x"),
        format!("file://{root}/a.txt#x"),
        format!("file://evil.host{root}/a.txt"),
        format!("file://LOCALHOST{root}/a.txt"),
        format!("file://127.0.0.1{root}/a.txt"),
        format!("file://localhost.evil{root}/a.txt"),
        format!("file://user@{root}/a.txt"),
        format!("file://localhost:80{root}/a.txt"),
        format!("file:{root}/a.txt"),
        format!("FILE://{root}/a.txt"),
        "file:a.txt".to_owned(),
        "file:".to_owned(),
        "file://".to_owned(),
        "file://a.txt".to_owned(),
    ] {
        let refused = ground.workspace.path(&uri).unwrap_err();
        assert_eq!(refused.code(), "bad_path", "{uri}: {refused}");
    }
    assert_eq!(ground.read(&format!("file://{root}/a.txt")).unwrap(), "a");
}

#[test]
fn what_no_system_takes_for_a_path_is_refused() {
    let ground = Ground::new();
    for spelling in [
        String::new(),
        "a\0.txt".to_owned(),
        "a.txt\0".to_owned(),
        "d\\b.txt".to_owned(),
        "..\\outside\\secret".to_owned(),
        "\\\\host\\share".to_owned(),
        "C:\\a.txt".to_owned(),
        "C:/a.txt".to_owned(),
        "a/".repeat(2048),
        "x".repeat(4096),
    ] {
        let refused = ground.workspace.path(&spelling).unwrap_err();
        assert_eq!(refused.code(), "bad_path", "{spelling:?}: {refused}");
    }
    let longest = "n".repeat(255);
    assert!(ground.write(&longest, "fits").unwrap());
    assert_eq!(ground.read(&longest).unwrap(), "fits");
    assert_eq!(ground.code(&"n".repeat(256)), "io_error");
    // The longest path, made of many steps.
    let winding = format!("{}a.txt", "./".repeat(2040));
    assert_eq!(ground.read(&winding).unwrap(), "a");
}

#[test]
fn what_only_looks_like_a_separator_is_part_of_a_name() {
    let ground = Ground::new();
    let names = [
        "．．／outside／secret",
        "‥∕outside",
        "..%2foutside%2fsecret",
        "%2e%2e",
        "a.txt.",
        "a.txt ",
        " a.txt",
        "...",
        "C:",
        "~",
        "$HOME",
        "-rf",
        "new\nline",
        "quote\"'`);",
        "\u{202e}txt.a",
        "caf\u{e9}",
    ];
    for name in names {
        assert_eq!(ground.code(name), "not_found", "{name:?}");
    }
    for name in names {
        assert!(ground.write(name, name).unwrap(), "{name:?}");
        assert_eq!(std::fs::read_to_string(ground.inside(name)).unwrap(), name);
        assert_eq!(ground.read(name).unwrap(), name, "{name:?}");
    }
    // Nothing is normalised: the same letter as two characters is another name.
    assert_eq!(ground.code("cafe\u{301}"), "not_found");
    assert_eq!(ground.code("A.TXT"), "not_found");
}

#[test]
fn a_name_that_is_no_text_is_reached_by_its_uri_and_stays_as_it_is() {
    let ground = Ground::new();
    let names: [&[u8]; 4] = [b"caf\xe9", b"\xff\xfe", b"half\xed\xa0\x80", b"back\\slash"];
    for name in names {
        let absolute = ground.inside(name_of(name));
        std::fs::write(&absolute, "found").unwrap();
        let uri = wire::file_uri(absolute.as_os_str().as_bytes());
        assert_eq!(ground.read(&uri).unwrap(), "found", "{uri}");
        let path = ground.path(&uri);
        assert_eq!(wire::file_uri(ground.workspace.absolute(&path).as_os_str().as_bytes()), uri);
        assert!(!ground.write(&uri, "written").unwrap(), "{uri}");
        assert_eq!(std::fs::read_to_string(&absolute).unwrap(), "written");
    }
    assert_eq!(ground.names("").len(), 3 + names.len());
}

#[test]
fn a_path_outside_is_refused_with_the_same_path_inside() {
    let ground = Ground::new();
    for (spelling, same) in [
        ("/elsewhere/project/d/b.txt", "d/b.txt"),
        ("/home/somebody/a.txt", "a.txt"),
        ("../../other/d/e/c.txt", "d/e/c.txt"),
    ] {
        let refused = ground.read(spelling).unwrap_err();
        assert_eq!(refused.code(), "outside_workspace");
        assert!(refused.hint().unwrap().contains(&format!("`{same}`")), "{:?}", refused.hint());
        assert_eq!(refused.path(), spelling);
    }
    let refused = ground.read("/no/such/thing").unwrap_err();
    assert!(refused.hint().unwrap().contains(&ground.base.join("ws").display().to_string()));
    assert!(!refused.hint().unwrap().contains("did you mean"), "{:?}", refused.hint());
}

#[test]
fn what_is_missing_is_told_with_the_names_that_look_like_it() {
    let ground = Ground::new();
    let PathError::NotFound { nearest, .. } = ground.read("d/b.text").unwrap_err() else { panic!() };
    assert_eq!(nearest, ["d/b.txt"]);
    let PathError::NotFound { nearest, .. } = ground.read("d/nothing-like-it").unwrap_err() else { panic!() };
    assert_eq!(nearest, Vec::<String>::new());
    assert_eq!(ground.code("d"), "is_a_directory");
    assert_eq!(ground.code("a.txt/x"), "not_a_directory");
}

#[test]
fn what_acts_on_names_needs_one() {
    let ground = Ground::new();
    for spelling in [".", "..", "d/..", "d/.", "d/e/../..", "./"] {
        let refused = ground.target(spelling).unwrap_err();
        assert_eq!(refused.code(), "bad_path", "{spelling}: {refused}");
        assert_eq!(ground.write(spelling, "x").unwrap_err().code(), "bad_path", "{spelling}");
    }
    assert!(ground.target("d").is_ok());
    assert!(ground.target("d/").is_ok());
}

#[test]
fn the_innermost_of_several_directories_is_meant() {
    let ground = Ground::new();
    let roots = [ground.inside(""), ground.outside("d")];
    let workspace = Workspace::open(&roots).unwrap();
    let read = |text: &str| workspace.path(text).and_then(|path| workspace.open_file(&path)).map(drop);
    assert!(read("a.txt").is_ok());
    assert!(read(&ground.outside("d/secret").display().to_string()).is_ok(), "it is a root now");
    for spelling in
        [ground.outside("secret"), ground.outside("d/../secret"), ground.base.join("ws-evil/a.txt")]
    {
        let refused = read(&spelling.display().to_string()).unwrap_err();
        assert_eq!(refused.code(), "outside_workspace", "{}", spelling.display());
    }
    // No link leads from one root into another.
    ground.link("to-the-other", "../outside/d/secret");
    assert_eq!(read("to-the-other").unwrap_err().code(), "outside_workspace");
}
