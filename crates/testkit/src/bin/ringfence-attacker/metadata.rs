//! M01–M23: changing, replacing and making files of the scope that programs outside obey.

use std::path::Path;

use testkit::AttackStage;

use crate::file_calls::exchange;
use crate::files::{create, done, overwrite, rename};
use crate::row::Row;
use crate::system::{Attempt, c_path, call, open, write};

/// The last one takes away what the others need.
pub(crate) const ROWS: &[Row] = &[
    ("M01", |stage| create(stage.in_scope(".git/hooks/pre-commit"))),
    ("M02", |stage| replace(stage, ".git/config")),
    ("M03", |stage| rename(stage.in_scope(".git/info"), stage.in_scope(".git/moved"))),
    ("M04", |stage| make(&stage.in_scope(".git/commondir"))),
    ("M05", replace_by_link),
    ("M06", |stage| {
        drop(std::fs::create_dir(stage.in_scope(".claude")));
        create(stage.in_scope(".claude/settings.json"))
    }),
    ("M07", |stage| {
        drop(std::fs::remove_dir(stage.in_scope(".envrc")));
        make(&stage.in_scope(".envrc"))
    }),
    ("M08", move_directory_over),
    ("M09", |stage| link_unnamed(&stage.in_scope(".husky"), &stage.in_scope(".husky/pre-commit"))),
    ("M10", |stage| link_unnamed(&stage.scope, &stage.in_scope(".cursor/mcp.json"))),
    ("M11", |stage| {
        create(stage.in_scope("m11"))?;
        exchange(stage.in_scope("m11"), stage.in_scope(".mcp.json"))
    }),
    ("M12", |stage| done(call!(libc::SYS_chmod, c_path(stage.in_scope(".idea/run.xml")), 0o777))),
    ("M13", |stage| create(stage.in_scope("shared/codex/config.toml"))),
    ("M14", |stage| done(call!(libc::SYS_unlink, c_path(stage.in_scope(".codex"))))),
    ("M15", |stage| make(&stage.in_scope("later/gemini"))),
    ("M18", |stage| {
        call!(libc::SYS_unlink, c_path(stage.in_scope("step")))?;
        make(&stage.in_scope("step"))
    }),
    ("M19", |stage| make(&stage.in_scope("scripts/commit-msg"))),
    ("M20", |stage| make(&stage.in_scope("more.gitconfig"))),
    ("M21", |stage| make(&stage.in_scope(".git/extra"))),
    ("M22", |stage| {
        std::fs::create_dir_all(stage.in_scope("tools/hooks"))?;
        create(stage.in_scope("tools/hooks/pre-commit"))
    }),
    ("M23", become_repository),
    ("M16", |stage| rename(stage.in_scope("shared"), stage.in_scope("moved"))),
    ("M17", |stage| rename(stage.in_scope(".git"), stage.in_scope("moved-git"))),
];

/// Writes a file that may exist.
fn make(path: &Path) -> Attempt {
    write(open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o600)?, "written by the attacker\n")?;
    Ok(String::new())
}

fn replace(stage: &AttackStage, name: &str) -> Attempt {
    create(stage.in_scope("replacement"))?;
    overwrite(stage.in_scope("replacement"))?;
    rename(stage.in_scope("replacement"), stage.in_scope(name))
}

fn replace_by_link(stage: &AttackStage) -> Attempt {
    drop(std::fs::remove_dir(stage.in_scope(".vscode")));
    std::fs::create_dir(stage.in_scope("editor"))?;
    done(call!(libc::SYS_symlink, c"editor", c_path(stage.in_scope(".vscode"))))
}

fn move_directory_over(stage: &AttackStage) -> Attempt {
    std::fs::create_dir(stage.in_scope("container"))?;
    create(stage.in_scope("container/devcontainer.json"))?;
    rename(stage.in_scope("container"), stage.in_scope(".devcontainer"))
}

/// Makes the scope itself a repository, which git takes where `.git` is none.
fn become_repository(stage: &AttackStage) -> Attempt {
    create(stage.in_scope("HEAD"))?;
    for name in ["objects", "refs"] {
        std::fs::create_dir(stage.in_scope(name))?;
    }
    Ok(String::new())
}

/// Makes a file without a name in one directory, and gives it one in another.
fn link_unnamed(directory: &Path, to: &Path) -> Attempt {
    let file = open(directory, libc::O_TMPFILE | libc::O_WRONLY, 0o600)?;
    let from = c_path(format!("/proc/self/fd/{file}"));
    done(call!(libc::SYS_linkat, libc::AT_FDCWD, from, libc::AT_FDCWD, c_path(to), libc::AT_SYMLINK_FOLLOW))
}
