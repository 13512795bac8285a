//! What must hold for any path and any arguments that a client sends. Called by the fuzz target `resolver` and, with the
//! corpus that it kept, by a test.
//!
//! The paths lead through a small workspace that really exists, with links that lead outside. What the resolver opens
//! has its real path below the root; no answer of a tool shows what lies outside; nothing outside changes.

mod ground;
mod spellings;

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value};

use self::ground::{Ground, NAME_OUTSIDE, SECRET, with_ground};
use crate::context::ServerContext;
use crate::files::{Expected, Parents, PathError, Target, Workspace};
use crate::tools::{Arguments, Call, Cancellation, FIELDS_WITH_PATHS, Field, Kind, ResultForm, TOOLS, Tool};

/// Steps of one run.
const MAX_STEPS: usize = 6;

/// Panics if a path leads outside on this input.
pub fn check(data: &[u8]) {
    with_ground(|ground, context| {
        let mut choices = Unstructured::new(data);
        for _ in 0..MAX_STEPS {
            if choices.is_empty() || step(ground, context, &mut choices).is_err() {
                break;
            }
        }
        ground.check_outside();
    });
}

fn step(ground: &Ground, context: &ServerContext, choices: &mut Unstructured<'_>) -> Result<()> {
    if choices.arbitrary()? {
        return call(ground, context, choices);
    }
    let path = spellings::choose(ground, choices)?;
    let operation = choices.int_in_range(0..=8)?;
    let other = if operation == 8 { spellings::choose(ground, choices)? } else { String::new() };
    // Refusals are fine; what was opened is checked as it is opened.
    let _ = resolve(ground, &context.workspace, operation, (&path, &other));
    Ok(())
}

fn resolve(
    ground: &Ground,
    workspace: &Workspace,
    operation: u8,
    (path, other): (&str, &str),
) -> std::result::Result<(), PathError> {
    let path = workspace.path(path)?;
    if operation > 3 {
        ground.note_change();
    }
    let parents = if operation.is_multiple_of(2) { Parents::Create } else { Parents::Expect };
    match operation {
        0 => {
            let mut found = workspace.open_file(&path)?;
            ground.check_inside(found.file.as_fd());
            let mut contents = String::new();
            let _ = found.file.read_to_string(&mut contents);
            assert!(!contents.contains(SECRET));
        }
        1 => ground.check_inside(workspace.open_directory(&path)?.as_fd()),
        2 => {
            let ((_, directory), _) = workspace.directory_of(&path)?;
            ground.check_inside(directory.as_fd());
        }
        3 => {
            let stat = workspace.stat(&path)?;
            assert!(!ground.is_outside(stat.st_ino), "a file outside was looked at");
        }
        4 | 5 => {
            let target = workspace.write_target(&path, parents)?;
            check_target(ground, &target);
            workspace.write(&target, b"written", Expected::Anything)?;
        }
        6 => {
            workspace.make_directory(&path, parents)?;
            ground.check_inside(workspace.open_directory(&path)?.as_fd());
        }
        7 => {
            let target = workspace.target(&path, parents)?;
            check_target(ground, &target);
            target.delete()?;
        }
        _ => {
            let (from, to) = (workspace.target(&path, parents)?, workspace.path(other)?);
            let to = workspace.target(&to, parents)?;
            check_target(ground, &from);
            check_target(ground, &to);
            from.rename_to(&to, true)?;
        }
    }
    Ok(())
}

/// A name in a directory of the workspace, and not a way out of it.
fn check_target(ground: &Ground, target: &Target) {
    ground.check_inside(target.directory());
    let name = target.name();
    assert!(!name.is_empty() && name != "." && name != ".." && !name.as_encoded_bytes().contains(&b'/'));
}

/// The real path of an open file, as the kernel tells it.
fn real_path(open: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/self/fd/{}", open.as_raw_fd());
    std::fs::read_link(link).expect("the path of an open file")
}

/// Calls a tool that handles files.
fn call(ground: &Ground, context: &ServerContext, choices: &mut Unstructured<'_>) -> Result<()> {
    let tools: Vec<&Tool> = TOOLS.iter().filter(|tool| tool.handles_files()).collect();
    let tool = *choices.choose(&tools)?;
    let given = arguments(ground, tool.takes, choices)?;
    let Ok(arguments) = Arguments::read(tool.takes, Value::Object(given)) else { return Ok(()) };
    if tool.writes_files() {
        ground.note_change();
    }
    let cancellation = Cancellation::default();
    let call = Call::new(context, &cancellation, None);
    let shown = match (tool.run)(&call, &arguments) {
        Ok(answer) => {
            serde_json::to_string(&answer.to_result(ResultForm::TextAndData)).expect("an answer is JSON")
        }
        Err(error) => format!("{error:?}"),
    };
    assert!(!shown.contains(SECRET) && !shown.contains(NAME_OUTSIDE), "{} shows {shown}", tool.name);
    Ok(())
}

fn arguments(
    ground: &Ground,
    fields: &[Field],
    choices: &mut Unstructured<'_>,
) -> Result<Map<String, Value>> {
    let mut given = Map::new();
    for field in fields {
        if field.is_required() || choices.ratio(1, 4)? {
            given.insert(field.name.to_owned(), argument(ground, field, choices)?);
        }
    }
    Ok(given)
}

fn argument(ground: &Ground, field: &Field, choices: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match field.kind {
        Kind::Text if FIELDS_WITH_PATHS.contains(&field.name) => spellings::choose(ground, choices)?.into(),
        Kind::Text if field.name == "patch" => spellings::patch(ground, choices)?.into(),
        Kind::Text => spellings::text(choices)?.into(),
        Kind::Choice(all) => (*choices.choose(all)?).into(),
        Kind::Flag => choices.arbitrary::<bool>()?.into(),
        Kind::Number { least, most } => choices.int_in_range(least..=most.min(least + 100))?.into(),
        Kind::Objects(fields) => {
            let one = arguments(ground, fields, choices)?;
            Value::Array(vec![Value::Object(one)])
        }
        Kind::Texts => Value::Array(vec![spellings::text(choices)?.into()]),
        Kind::Object => Value::Object(Map::new()),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzing_kept_of_paths_stays_inside() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/resolver");
        let mut files = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0);
    }
}
