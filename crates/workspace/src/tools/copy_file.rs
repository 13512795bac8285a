//! `copy_file`: copies one file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{create_dirs, parents};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::files::{Expected, FileMode, FoundFile, PathError, Target};

/// Bytes copied between two checks for cancellation.
const PIECE: usize = 1024 * 1024;

pub(super) const TOOL: Tool = Tool {
    name: "copy_file",
    title: "Copy a file",
    about: "Copies one file inside the workspace, completely or not at all. Does not replace an existing file unless `overwrite` is set. For directories, use run_terminal_cmd with `cp -a`.",
    effect: Effect::Changes,
    pace: Pace::Long,
    takes: &[
        Field::required("source", Kind::Text, "The file to copy.").or(&["source_path", "sourcePath", "path"]),
        Field::required("destination", Kind::Text, "The path of the copy, with its name.").or(&[
            "target_path",
            "targetPath",
            "destination_path",
        ]),
        Field::switch("overwrite", "Replace an existing file."),
        create_dirs("Create missing directories above the copy."),
    ],
    gives: &[
        Field::optional("source", Kind::Text, "The file."),
        Field::optional("destination", Kind::Text, "The copy."),
        Field::optional("bytes_written", Kind::COUNT, "Size of the copy."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let (from, to) =
        (workspace.path(arguments.text("source"))?, workspace.path(arguments.text("destination"))?);
    let parents = parents(arguments);
    let expected = if arguments.flag("overwrite") { Expected::Anything } else { Expected::Absent };
    let source = workspace.open_file(&from)?;
    let target = workspace.write_target(&to, parents)?;
    let replaced = call.original(&to);
    let bytes = copy_contents(call, source, &target, expected)?;
    call.note_change(&to, replaced);
    call.did("read", &from, bytes);
    call.did("write", &to, bytes);
    let (from, to) = (workspace.show(&from), workspace.show(&to));
    let data = json!({ "source": from, "destination": to, "bytes_written": bytes });
    Ok(Answer::new(format!("copied {from} to {to} ({bytes} bytes)"), &data))
}

/// Copies a file atomically. Returns its length.
pub(super) fn copy_contents(
    call: &Call<'_>,
    source: FoundFile,
    target: &Target,
    expected: Expected,
) -> Result<u64, PathError> {
    let FoundFile { mut file, stat } = source;
    let put = |copy: &mut File| copy_all(&mut file, copy, || call.cancellation.is_cancelled());
    Ok(call.context.workspace.write_with(target, expected, FileMode::Of(stat.st_mode), put)?.bytes)
}

/// Turns blocks of zeros into holes, so that the copy of a sparse file does not fill the disk.
fn copy_all(from: &mut File, to: &mut File, is_cancelled: impl Fn() -> bool) -> io::Result<u64> {
    let mut buffer = vec![0; PIECE];
    let mut copied = 0;
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            to.set_len(copied)?;
            return Ok(copied);
        }
        if is_cancelled() {
            return Err(io::Error::other("the copy was cancelled"));
        }
        copied += length as u64;
        if buffer[..length].iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Start(copied))?;
        } else {
            to.write_all(&buffer[..length])?;
        }
    }
}
