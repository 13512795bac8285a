//! Session workspaces: copies of projects, what changed in them, and taking the changes over.
//!
//! A *base* is a project's directory. A *copy* is a session workspace of it: a record, a history and one or more trees
//! below a state root. This crate starts no processes and mounts nothing: of an overlay it makes the directories
//! ([`Tree`]) that a fence mounts over the base.
//!
//! - [`Workspaces`] opens the state root, lists and finds copies, creates, discards, restores and prunes them.
//! - [`WorkspaceCopy`] is one copy: [`WorkspaceCopy::occupy`] holds it for one process, [`WorkspaceCopy::changes`] says
//!   what is different from the base, [`WorkspaceCopy::apply`] takes that over, [`WorkspaceCopy::undo`] gives it back.
//! - [`Changes`] is what changed: entries, and what is shown but never taken over. [`Changes::write_diff`] prints it.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use staging::{ApplyRequest, ChangeOptions, Method, NewCopy, Workspaces};
//!
//! let root = Workspaces::default_root(None, "/home/ada".as_ref());
//! let workspaces = Workspaces::open(&root)?;
//! let copy = workspaces.create(NewCopy::of("/home/ada/project".as_ref(), Method::Overlay))?;
//! // … agents work in it …
//! let changes = copy.changes(&ChangeOptions::default())?;
//! changes.write_diff(&mut std::io::stdout(), &staging::DiffOptions::default())?;
//! let applied = copy.apply(&ApplyRequest::default(), &|_| None)?;
//! println!("{} files taken over", applied.paths.len());
//! copy.undo()?;
//! # Ok(())
//! # }
//! ```
//!
//! Both sides of a copy can be changed by others at any time: the base by its owner, the copy by the fenced agent. So
//! nothing here follows a symbolic link of either: paths are resolved by the kernel below a descriptor of the top
//! directory, and what is taken over was first read into a place that no fence shows.

mod apply;
mod beginning;
mod cancel;
mod changes;
mod copy;
mod creation;
mod diff;
mod error;
mod file_copy;
mod held_tree;
mod history;
mod manifest;
mod merge;
mod method;
mod name;
mod path_text;
mod quoting;
mod record;
mod removal;
mod secrets;
mod selection;
mod staged_scope;
mod state_files;
mod tracked;
mod walk;
mod workspaces;

#[cfg(test)]
mod tests;

pub use apply::{
    Ancestor, Applied, ApplyError, ApplyRequest, Conflict, ConflictReason, Recovered, RecoveryOutcome, Undone,
};
pub use beginning::Begun;
pub use cancel::Cancel;
pub use changes::{
    BaseState, Change, ChangeKind, ChangeOptions, Changes, ContentKind, Contents, EntryFacts, EntryKind,
    IgnoredTree, LeftAside, LeftAsideReason, is_executed_outside,
};
pub use copy::{BaseDrift, Occupied, Unsaved, WorkspaceCopy};
pub use diff::{DiffOptions, write_comparison};
pub use error::StagingError;
pub use history::{Event, HistoryLine};
pub use method::{Method, can_reflink};
pub use name::{NameError, WorkspaceName};
pub use record::{CopyId, OutsideRepository, Record, SetUp, StartCommit, Tree};
pub use workspaces::{NewCopy, NewTree, PruneRules, Pruned, Trashed, Workspaces};
