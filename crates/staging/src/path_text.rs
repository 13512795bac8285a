//! Paths in JSON: a string where they are UTF-8; else the lossy string, and the bytes as base64 beside it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathText {
    Utf8(String),
    Bytes { lossy: String, base64: String },
}

impl PathText {
    fn of(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Utf8(text.to_owned()),
            None => Self::Bytes {
                lossy: path.to_string_lossy().into_owned(),
                base64: STANDARD.encode(path.as_os_str().as_bytes()),
            },
        }
    }

    fn into_path<E: serde::de::Error>(self) -> Result<PathBuf, E> {
        match self {
            Self::Utf8(text) => Ok(text.into()),
            Self::Bytes { base64, .. } => {
                let bytes =
                    STANDARD.decode(base64).map_err(|_| E::custom("the bytes of a path are no base64"))?;
                Ok(OsString::from_vec(bytes).into())
            }
        }
    }
}

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    PathText::of(path).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    PathText::deserialize(deserializer)?.into_path()
}

/// The same for lists.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, PathBuf, PathText, Serializer};

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| PathText::of(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Vec::<PathText>::deserialize(deserializer)?.into_iter().map(PathText::into_path).collect()
    }
}

/// The same for what may be missing, and is only written.
pub(crate) mod option {
    use super::{PathBuf, PathText, Serialize, Serializer};

    // serde passes a reference to the field.
    #[allow(clippy::ref_option)]
    pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(PathText::of).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Example {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super::list")]
        many: Vec<PathBuf>,
    }

    #[test]
    fn every_name_comes_back() {
        let odd = PathBuf::from(OsString::from_vec(b"a\xff\n\"\\b".to_vec()));
        let example = Example { one: odd.clone(), many: vec!["ü\n".into(), odd] };
        let text = serde_json::to_string(&example).unwrap();
        assert!(text.contains("\"lossy\":\"a\u{fffd}\\n"), "{text}");
        assert_eq!(serde_json::from_str::<Example>(&text).unwrap(), example);
    }
}
