//! Reads what a server says when it fails: the line that tells why, and whether the fence refused it a write.

use std::path::Path;

use crate::directories::Directories;

/// Words of lines that tell why a program ended, in small letters.
const SIGNS: [&str; 10] =
    ["error", "missing", "required", "not set", "denied", "cannot", "must", "invalid", "failed", "not found"];

/// A reason is no longer than this, in characters.
const MAX_REASON: usize = 300;

/// The line of stderr that tells why a server ended: the last one that speaks of an error, or else the last one. Node
/// writes its error before a stack and its own version, Python after a traceback.
pub fn telling_line(stderr: &str) -> Option<String> {
    let lines = || stderr.lines().map(str::trim).filter(|line| !is_decoration(line));
    let speaks = |line: &&str| {
        let line = line.to_lowercase();
        SIGNS.iter().any(|sign| line.contains(sign))
    };
    let line = lines().rfind(speaks).or_else(|| lines().next_back())?;
    Some(line.chars().take(MAX_REASON).collect())
}

/// Whether a line is part of a stack trace, or says nothing.
fn is_decoration(line: &str) -> bool {
    let is_frame = ["at ", "File \"", "Node.js v", "npm notice"].iter().any(|start| line.starts_with(start));
    is_frame || !line.contains(char::is_alphanumeric)
}

/// What to do about a write outside the directories of a fenced server, if that is what its words are about.
pub fn hint_on_refused_write(words: &str, directories: &Directories) -> Option<String> {
    words.lines().rev().find_map(|line| {
        let path = fence::refused_path(line).filter(|path| path.is_absolute())?;
        let is_refused = !directories.vetted().iter().any(|writable| path.starts_with(writable.path()))
            && !["/dev", "/proc", "/sys"].iter().any(|other| path.starts_with(other));
        is_refused.then(|| remedy(&path))
    })
}

fn remedy(path: &Path) -> String {
    format!(
        "the fence refused {}: a server writes only in the workspace, in its private home and in its storage. Give it \
         a storage that stays (serve --storage, or `storage: persistent` in a configuration) and point it there with \
         {{storage}}, or open a directory with --write DIR (`fence: {{write: [DIR]}}`)",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_tells_is_found_in_the_words_of_node_and_python() {
        let node = "/srv/x.js:3\n    throw new Error('Missing KEY');\n    ^\n\nError: Missing KEY\n    at Object.<anonymous> \
                    (/srv/x.js:3:11)\n    at Module._compile (node:internal/modules/cjs/loader:1554:14) {\n  code: 'X'\n}\n\n\
                    Node.js v22.14.0";
        let python = "Traceback (most recent call last):\n  File \"/srv/x.py\", line 3, in <module>\n    key()\n\
                      ValueError: KEY is required";
        for (stderr, expected) in [
            (node, Some("Error: Missing KEY")),
            (python, Some("ValueError: KEY is required")),
            (
                "starting\nError: BRAVE_API_KEY environment variable is required\n",
                Some("Error: BRAVE_API_KEY environment variable is required"),
            ),
            ("Usage: server KEY\n\n", Some("Usage: server KEY")),
            ("\n  ^\n", None),
        ] {
            assert_eq!(telling_line(stderr).as_deref(), expected, "{stderr}");
        }
    }

    #[test]
    fn a_write_that_the_fence_refused_has_a_remedy() {
        let directories = Directories::default();
        let hint = |words: &str| hint_on_refused_write(words, &directories);
        let memory = hint("Error: EROFS: read-only file system, open '/pkg/dist/memory.jsonl'").unwrap();
        assert!(memory.contains("/pkg/dist/memory.jsonl") && memory.contains("--storage"), "{memory}");
        let python = "x\nPermissionError: [Errno 13] Permission denied: '/srv/notes'\n";
        assert!(hint(python).unwrap().contains("/srv/notes"));
        for words in
            ["Permission denied (publickey).", "EACCES: permission denied, open '/dev/sda'", "all is well"]
        {
            assert_eq!(hint(words), None, "{words}");
        }
    }
}
