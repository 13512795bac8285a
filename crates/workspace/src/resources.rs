//! Files of the workspace as MCP resources.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::{ErrorReply, code};

use crate::context::ServerContext;
use crate::files::{PathError, SessionPath};
use crate::output::invalid_params;
use crate::search::{Finding, Patience, Walk, WalkFilter};
use crate::text::{FileKind, FileText};

/// Files on one page of the list.
const PAGE: usize = 500;
/// The longest file that is read as a resource.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// Time limit for listing files.
const LIST_TIME: Duration = Duration::from_secs(30);
/// MCP's error code for a resource that does not exist.
const RESOURCE_NOT_FOUND: i32 = -32002;

#[derive(Debug)]
pub(crate) enum ResourceError {
    Path(PathError),
    Params(String),
}

impl ResourceError {
    pub(crate) fn to_reply(&self) -> ErrorReply {
        match self {
            Self::Params(reason) => invalid_params(reason),
            Self::Path(error) => {
                let code = match error {
                    PathError::NotFound { .. } => RESOURCE_NOT_FOUND,
                    PathError::Io { .. } => code::INTERNAL_ERROR,
                    _ => code::INVALID_PARAMS,
                };
                let message = match error.hint() {
                    Some(hint) => format!("{error}; hint: {hint}"),
                    None => error.to_string(),
                };
                ErrorReply::new(code, message).with_data(json!({ "code": error.code(), "uri": error.path() }))
            }
        }
    }
}

impl From<PathError> for ResourceError {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

/// The URI in a request, and the file that it names.
pub(crate) fn named(
    context: &ServerContext,
    params: Option<&RawValue>,
) -> Result<(String, SessionPath), ResourceError> {
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    let text = params.map_or("{}", RawValue::get);
    let Params { uri } =
        serde_json::from_str(text).map_err(|error| ResourceError::Params(error.to_string()))?;
    if !uri.starts_with("file:") {
        return Err(ResourceError::Params(format!(
            "`{uri}` is not a resource of this server: its URIs begin with file://"
        )));
    }
    let path = context.workspace.path(&uri)?;
    Ok((uri, path))
}

pub(crate) fn templates(context: &ServerContext) -> Value {
    let root = context.workspace.roots().next().map(|root| wire::file_uri(root.as_os_str().as_bytes()));
    json!({ "resourceTemplates": [{
        "uriTemplate": format!("{}/{{+path}}", root.unwrap_or_default()),
        "name": "workspace_file",
        "title": "A file of the workspace",
        "description": "Any file below the workspace, by its path relative to it.",
    }] })
}

/// Returns one page of the files that a search sees, sorted. The cursor is the last file of the previous page.
pub(crate) fn list(context: &ServerContext, params: Option<&RawValue>) -> Result<Value, ResourceError> {
    #[derive(Default, Deserialize)]
    struct Params {
        cursor: Option<String>,
    }
    let Params { cursor } = params
        .map_or(Ok(Params::default()), |params| serde_json::from_str(params.get()))
        .map_err(|error| ResourceError::Params(error.to_string()))?;
    let after = cursor.as_deref().map(read_cursor).transpose()?;
    let root = context.workspace.path(".")?;
    let start = context.workspace.open_directory(&root)?;
    let found: Mutex<BTreeSet<Vec<u8>>> = Mutex::default();
    let patience = Patience { until: Instant::now() + LIST_TIME, is_cancelled: &|| false };
    Walk::new(&context.workspace, &root, start, WalkFilter::default(), patience).run(|| {
        let (found, after) = (&found, &after);
        move |finding: &Finding<'_>| {
            let is_listed = finding.kind == FileType::RegularFile
                && after.as_deref().is_none_or(|after| finding.below.as_os_str().as_bytes() > after);
            if is_listed {
                let mut found = found.lock();
                found.insert(finding.below.as_os_str().as_bytes().to_vec());
                // One more than a page tells whether there is a next page.
                if found.len() > PAGE + 1 {
                    found.pop_last();
                }
            }
            true
        }
    });
    let found: Vec<Vec<u8>> = std::mem::take(&mut *found.lock()).into_iter().collect();
    let resources: Vec<Value> = found.iter().take(PAGE).map(|below| described(context, below)).collect();
    let mut result = json!({ "resources": resources });
    if found.len() > PAGE {
        result["nextCursor"] = STANDARD.encode(&found[PAGE - 1]).into();
    }
    Ok(result)
}

fn read_cursor(cursor: &str) -> Result<Vec<u8>, ResourceError> {
    STANDARD
        .decode(cursor)
        .map_err(|_| ResourceError::Params("the cursor is not from this server".to_owned()))
}

fn described(context: &ServerContext, below: &[u8]) -> Value {
    let below = Path::new(OsStr::from_bytes(below));
    let path = SessionPath::found(0, below.to_owned());
    json!({
        "uri": wire::file_uri(context.workspace.absolute(&path).as_os_str().as_bytes()),
        "name": below.to_string_lossy(),
    })
}

pub(crate) fn read(context: &ServerContext, params: Option<&RawValue>) -> Result<Value, ResourceError> {
    let (uri, path) = named(context, params)?;
    let found = context.workspace.open_file(&path)?;
    let size = u64::try_from(found.stat.st_size).unwrap_or(0);
    if size > MAX_BYTES {
        return Err(PathError::TooLarge { path: uri, size, limit: MAX_BYTES }.into());
    }
    let mut bytes = Vec::new();
    found.file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| PathError::io(&uri, error))?;
    let kind = FileKind::of(&bytes);
    let contents = match (kind, FileText::decode(&bytes)) {
        (FileKind::Text, Ok(text)) => json!({ "uri": uri, "mimeType": "text/plain", "text": text.text }),
        (kind, _) => json!({ "uri": uri, "mimeType": kind.mime(), "blob": STANDARD.encode(&bytes) }),
    };
    Ok(json!({ "contents": [contents] }))
}
