//! Paths in JSON: strings where they are UTF-8, else arrays of bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string of the operating system that any JSON can carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Raw {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<OsString> for Raw {
    fn from(string: OsString) -> Self {
        match string.into_string() {
            Ok(text) => Self::Text(text),
            Err(string) => Self::Bytes(string.into_vec()),
        }
    }
}

impl From<Raw> for OsString {
    fn from(raw: Raw) -> Self {
        match raw {
            Raw::Text(text) => text.into(),
            Raw::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => serializer.serialize_str(text),
        None => path.as_os_str().as_bytes().serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Raw::deserialize(deserializer).map(|raw| PathBuf::from(OsString::from(raw)))
}

/// The same for lists.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, OsString, PathBuf, Raw, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        let raw: Vec<Raw> = paths.iter().map(|path| Raw::from(path.clone().into_os_string())).collect();
        raw.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        let raw = Vec::<Raw>::deserialize(deserializer)?;
        Ok(raw.into_iter().map(|raw| PathBuf::from(OsString::from(raw))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_survives() {
        #[derive(Serialize, Deserialize)]
        struct Holder(#[serde(with = "super")] PathBuf);
        for bytes in [&b"/plain"[..], b"/quote\"\n\\", b"/not utf-8 \xff\xfe"] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let text = serde_json::to_string(&Holder(path.clone())).unwrap();
            assert_eq!(serde_json::from_str::<Holder>(&text).unwrap().0, path);
        }
    }
}
