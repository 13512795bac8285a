//! The arguments for calling every tool that takes a path, with any path.

use serde_json::{Value, json};

/// The kind of path that a tool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A file; a link is followed.
    File,
    /// A file or directory; a link is not followed.
    Name,
    Directory,
    /// A file that does not exist yet.
    NewName,
}

pub(crate) struct PathTool {
    pub(crate) tool: &'static str,
    pub(crate) takes: Takes,
    pub(crate) arguments: fn(&str) -> Value,
}

const fn tool(tool: &'static str, takes: Takes, arguments: fn(&str) -> Value) -> PathTool {
    PathTool { tool, takes, arguments }
}

/// Every tool, at least once for each path that it takes.
pub(crate) const PATH_TOOLS: &[PathTool] = &[
    tool("read_file", Takes::File, |path| json!({ "path": path })),
    tool("write_file", Takes::File, |path| json!({ "path": path, "content": "fine, this is inside\nnew\n" })),
    tool(
        "edit_file",
        Takes::File,
        |path| json!({ "path": path, "code_edit": "fine\n", "full_replace": true }),
    ),
    tool("search_replace", Takes::File, |path| json!({ "path": path, "old_string": "f", "new_string": "f" })),
    tool(
        "search_replace",
        Takes::File,
        |path| json!({ "path": path, "old_string": "e", "new_string": "ee", "replace_all": true }),
    ),
    tool(
        "multi_edit",
        Takes::File,
        |path| json!({ "path": path, "edits": [{ "old_string": "f", "new_string": "ff", "replace_all": true }] }),
    ),
    tool(
        "apply_patch",
        Takes::NewName,
        |path| json!({ "patch": format!("*** Begin Patch\n*** Add File: {path}\n+patched\n*** End Patch\n") }),
    ),
    tool(
        "apply_patch",
        Takes::NewName,
        |path| json!({ "patch": format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+patched\n") }),
    ),
    tool("list_dir", Takes::Directory, |path| json!({ "path": path })),
    tool("directory_tree", Takes::Directory, |path| json!({ "path": path })),
    tool("file_search", Takes::Directory, |path| json!({ "path": path, "query": "f" })),
    tool("grep_search", Takes::Directory, |path| json!({ "path": path, "query": "." })),
    tool("grep_search", Takes::File, |path| json!({ "path": path, "query": "." })),
    tool("file_info", Takes::Name, |path| json!({ "path": path })),
    tool("create_directory", Takes::NewName, |path| json!({ "path": path })),
    tool("move_file", Takes::Name, |path| json!({ "source": path, "destination": "moved" })),
    tool("move_file", Takes::NewName, |path| json!({ "source": "spare", "destination": path })),
    tool(
        "copy_file",
        Takes::File,
        |path| json!({ "source": path, "destination": "copied", "overwrite": true }),
    ),
    tool("copy_file", Takes::NewName, |path| json!({ "source": "spare", "destination": path })),
    tool("delete_file", Takes::Name, |path| json!({ "path": path })),
    tool(
        "run_terminal_cmd",
        Takes::Directory,
        |path| json!({ "working_directory": path, "command": "cat f" }),
    ),
    tool(
        "sandboxed_shell",
        Takes::Directory,
        |path| json!({ "working_directory": path, "command": "cat f" }),
    ),
];
