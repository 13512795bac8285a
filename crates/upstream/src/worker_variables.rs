//! The environment variables that tell a server about its session.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use identity::{Handle, Instance, Principal};
use serde_json::json;
use wire::worker_variable::{COPY, INSTANCE, SCOPE, SCOPE_SOURCE, SESSION};

use crate::directories::Directories;

/// The session that a worker belongs to.
#[derive(Clone, Debug)]
pub struct Owner {
    pub principal: Principal,
    pub session: Handle,
    pub instance: Instance,
    /// Who named its directories, if they are known.
    pub scope_source: Option<&'static str>,
}

pub(crate) fn worker_variables(
    owner: Option<&Owner>,
    directories: &Directories,
) -> Vec<(OsString, OsString)> {
    let mut variables = Vec::new();
    if let Some(owner) = owner {
        variables.push((SESSION.into(), owner.session.to_string().into()));
        variables.push((INSTANCE.into(), owner.instance.as_str().into()));
        variables.extend(owner.scope_source.map(|source| (SCOPE_SOURCE.into(), source.into())));
    }
    variables.extend(directories.staged.as_ref().map(|staged| (COPY.into(), staged.name().into())));
    let uris: Vec<String> =
        directories.paths().iter().map(|path| wire::file_uri(path.as_os_str().as_bytes())).collect();
    if !uris.is_empty() {
        variables.push((SCOPE.into(), json!(uris).to_string().into()));
    }
    variables
}
