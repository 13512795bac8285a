//! The tools of the fixture, by subject.

mod arguments;
mod asking;
mod calls;
mod conformance;
mod files;
mod messages;
mod network;
mod processes;
pub(crate) mod tool;

use self::tool::{BlockingTool, QuickTool};

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    calls::find_quick(name)
        .or_else(|| conformance::find_quick(name))
        .or_else(|| messages::find_quick(name))
        .or_else(|| processes::find_quick(name))
        .or_else(|| network::find_quick(name))
        .or_else(|| files::find_quick(name))
        .or_else(|| asking::find_quick(name))
}

pub(crate) fn find_blocking(name: &str) -> Option<BlockingTool> {
    find_task(name)
        .or_else(|| conformance::find_blocking(name))
        .or_else(|| messages::find_blocking(name))
        .or_else(|| asking::find_blocking(name))
}

/// Finds a tool that can also run as a task.
pub(crate) fn find_task(name: &str) -> Option<BlockingTool> {
    calls::find_blocking(name)
}
