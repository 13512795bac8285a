//! Announces running gateways to the operator's tools: one file for each, with its address and the operator's token.
//! Only this user can read the files, and no fence can see their directory.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Discovered {
    /// The URL for clients, without a path.
    pub(crate) url: String,
    /// The URL for the operator, if it is another: plain HTTP on loopback.
    #[serde(default)]
    operator_url: Option<String>,
    pub(crate) token: String,
    pub(crate) pid: u32,
    pub(crate) upstream: String,
}

impl Discovered {
    /// The URL for the operator's requests, without a path.
    pub(crate) fn operator_url(&self) -> &str {
        self.operator_url.as_deref().unwrap_or(&self.url)
    }
}

/// The file of this gateway. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Announcement {
    path: PathBuf,
    pub(crate) token: String,
}

impl Announcement {
    pub(crate) fn publish(
        own: &Path,
        url: &str,
        operator: Option<SocketAddr>,
        upstream: &str,
    ) -> io::Result<Self> {
        let directory = own.join("gateways");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let pid = std::process::id();
        let path = directory.join(format!("{pid}.json"));
        // A killed process with the same pid may have left one.
        let _ = fs::remove_file(&path);
        let discovered = Discovered {
            url: url.to_owned(),
            operator_url: operator.map(|address| format!("http://{address}")),
            token: token.clone(),
            pid,
            upstream: upstream.to_owned(),
        };
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(serde_json::to_string(&discovered)?.as_bytes())?;
        Ok(Self { path, token })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the gateways that run, and removes the files of killed ones.
pub(crate) fn running(own: &Path) -> Vec<Discovered> {
    let mut found = Vec::new();
    for entry in fs::read_dir(own.join("gateways")).into_iter().flatten().flatten() {
        let path = entry.path();
        let read = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Discovered>(&text).ok());
        match read {
            Some(discovered) if Path::new(&format!("/proc/{}", discovered.pid)).exists() => {
                found.push(discovered);
            }
            _ => drop(fs::remove_file(&path)),
        }
    }
    found.sort_by(|a, b| a.url.cmp(&b.url));
    found
}
