//! What a server finds out about its session from its environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::scope::Scope;
use crate::{Handle, Instance};

/// The session that a worker is for, if it is for one.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) session: Handle,
    pub(crate) instance: Instance,
}

/// The handle of the session; not its id, which is a credential.
const SESSION: &str = "RINGFENCE_SESSION";
/// The client window.
const INSTANCE: &str = "RINGFENCE_INSTANCE";
/// The directories of the session as URIs, in JSON, the first one being where the server starts.
const SCOPE: &str = "RINGFENCE_SCOPE";
/// What holds around the server, in JSON.
const CONFINEMENT: &str = "RINGFENCE_CONFINEMENT";

pub(crate) fn worker_variables(owner: Option<&Owner>, scope: &Scope) -> Vec<(OsString, OsString)> {
    let mut variables = Vec::new();
    if let Some(owner) = owner {
        variables.push((SESSION.into(), owner.session.to_string().into()));
        variables.push((INSTANCE.into(), owner.instance.as_str().into()));
    }
    let uris: Vec<String> =
        scope.paths().iter().map(|path| wire::file_uri(path.as_os_str().as_bytes())).collect();
    if !uris.is_empty() {
        variables.push((SCOPE.into(), json!(uris).to_string().into()));
    }
    variables
}

/// The same for what the fence is.
pub(crate) fn confinement_variable(confinement: &fence::Confinement) -> (OsString, OsString) {
    let mut text = serde_json::to_value(confinement).unwrap_or_default();
    text["summary"] = confinement.summary().into();
    (CONFINEMENT.into(), text.to_string().into())
}
