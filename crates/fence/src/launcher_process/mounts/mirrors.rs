//! Mirrors: directories of the command that appear at the place of others, with a few of those shown inside them.

use std::path::PathBuf;

use super::super::StepError;
use super::super::ruleset::open_vetted;
use super::root::Root;
use super::shown::{Tree, open_tree};
use super::{NO_DEVICES, NO_SETUID, READ_ONLY, mount_with};
use crate::policy::Mirror;

/// What is mounted for one mirror, in this order.
pub(super) struct Opened {
    at: PathBuf,
    source: Tree,
    shown: Vec<(PathBuf, Tree)>,
}

/// Opens everything as long as the host's paths are there.
pub(super) fn open(mirrors: &[Mirror]) -> Result<Vec<Opened>, StepError> {
    mirrors
        .iter()
        .map(|mirror| {
            let shown = mirror.shown.iter().map(|name| mirror.at.join(name));
            let shown = shown.filter_map(|path| Some((path.clone(), open_tree(&path)?))).collect();
            let source = Tree::opened(open_vetted(&mirror.source)?);
            Ok(Opened { at: mirror.at.clone(), source, shown })
        })
        .collect()
}

pub(super) fn mount(mirrors: &[Opened], root: &Root) -> Result<(), StepError> {
    for mirror in mirrors {
        mount_with(root, &mirror.source, &mirror.at, NO_SETUID | NO_DEVICES)?;
        for (path, tree) in &mirror.shown {
            mount_with(root, tree, path, READ_ONLY | NO_SETUID | NO_DEVICES)?;
        }
    }
    Ok(())
}
