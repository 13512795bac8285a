//! Announces running gateways to the operator's tools: one file for each, with its addresses and the operator's token.
//! Only this user can read the files, and no fence can see their directory.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Discovered {
    /// The URL for clients, without a path.
    pub(crate) url: String,
    /// The name of the operator's unix socket in the same directory, if the gateway could make one.
    #[serde(default)]
    pub(crate) socket: Option<String>,
    pub(crate) token: String,
    pub(crate) pid: u32,
    pub(crate) upstream: String,
}

/// Where gateways announce themselves, in ringfence's own directory.
pub(crate) fn directory_in(own: &Path) -> PathBuf {
    own.join("gateways")
}

/// The file of this gateway. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Announcement {
    path: PathBuf,
    pub(crate) token: String,
}

impl Announcement {
    pub(crate) fn publish(own: &Path, url: &str, socket: Option<&str>, upstream: &str) -> io::Result<Self> {
        let directory = directory_in(own);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let pid = std::process::id();
        let path = directory.join(format!("{pid}.json"));
        let discovered = Discovered {
            url: url.to_owned(),
            socket: socket.map(str::to_owned),
            token: token.clone(),
            pid,
            upstream: upstream.to_owned(),
        };
        // Readers find the whole file, or that of a process that had this pid before.
        let unready = directory.join(format!("{pid}.new"));
        let _ = fs::remove_file(&unready);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unready)?;
        file.write_all(serde_json::to_string(&discovered)?.as_bytes())?;
        fs::rename(unready, &path)?;
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
    for entry in fs::read_dir(directory_in(own)).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
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
