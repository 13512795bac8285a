//! Paths and texts out of a fuzzer's choices: pieces that matter, and any bytes.

use arbitrary::{Result, Unstructured};

use super::ground::{Ground, NAME_OUTSIDE, SECRET};

const PIECES: &[&str] = &[
    "a.txt",
    "d",
    "e",
    "b.txt",
    "c.txt",
    "..",
    ".",
    "",
    "in",
    "up",
    "root",
    "out",
    "secret",
    "new",
    "dangling",
    "loop",
    "proc",
    "cwd",
    "through",
    "evil",
    "outside",
    "ws",
    "ws-evil",
    "..foo",
    "%2e%2e",
    "%2E%2E",
    "%2f",
    "%252e",
    "%00",
    "\0",
    "\\",
    "..\\",
    "~",
    "fresh",
    "etc",
    "passwd",
    "self",
    "fd",
    "\u{2024}\u{2024}",
    " ",
    "file:x",
];

const STARTS: &[&str] =
    &["", "", "", "/", "//", "./", "../", "file://", "file:///", "FILE://localhost/", "file:", "C:/"];

/// A path as a client may spell it.
pub(super) fn choose(ground: &Ground, choices: &mut Unstructured<'_>) -> Result<String> {
    if choices.ratio(1, 8)? {
        return any_text(choices);
    }
    let mut path = String::from(*choices.choose(STARTS)?);
    if choices.ratio(1, 4)? {
        // Below the workspace by its absolute path, or beside it.
        path.push_str(ground.root.to_str().expect("a path in UTF-8"));
        path.push_str(choices.choose(&["/", "", "-evil/", "/../", "//"])?);
    }
    let count = choices.int_in_range(0..=6)?;
    for index in 0..count {
        if index > 0 {
            path.push_str(choices.choose(&["/", "/", "/", "//", "%2f"])?);
        }
        path.push_str(choices.choose(PIECES)?);
    }
    Ok(path)
}

/// A text that is no path: a query, a pattern, new contents.
pub(super) fn text(choices: &mut Unstructured<'_>) -> Result<String> {
    const TEXTS: &[&str] = &[
        "",
        "one",
        "two\n",
        "b",
        ".*",
        "SECRET",
        "**",
        "*",
        "../**",
        "// ... existing code ...",
        "/outside/**",
    ];
    if choices.ratio(1, 4)? { any_text(choices) } else { Ok((*choices.choose(TEXTS)?).to_owned()) }
}

/// A patch in one of the known forms. It names its file itself.
pub(super) fn patch(ground: &Ground, choices: &mut Unstructured<'_>) -> Result<String> {
    let (path, other) = (choose(ground, choices)?, choose(ground, choices)?);
    Ok(match choices.int_in_range(0..=5)? {
        0 => format!("*** Begin Patch\n*** Add File: {path}\n+new\n*** End Patch\n"),
        1 => format!("*** Begin Patch\n*** Update File: {path}\n@@\n-two\n+2\n*** End Patch\n"),
        2 => format!(
            "*** Begin Patch\n*** Update File: {path}\n*** Move to: {other}\n@@\n-two\n+2\n*** End Patch\n"
        ),
        3 => format!("*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n"),
        4 => format!("--- a/{path}\n+++ b/{other}\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"),
        _ => format!("--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+new\n"),
    })
}

/// Any text, but none that an answer would repeat and so seem to have read.
fn any_text(choices: &mut Unstructured<'_>) -> Result<String> {
    let length = usize::from(choices.arbitrary::<u8>()?).min(choices.len());
    let text = String::from_utf8_lossy(choices.bytes(length)?).into_owned();
    Ok(text.replace(NAME_OUTSIDE, "").replace(SECRET, ""))
}
