//! Files that hold one secret, such as a token or a key, and that other users may neither read nor change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Far longer than any token or key.
const MAX_BYTES: u64 = 64 * 1024;

/// Why a file cannot be trusted with a secret, or holds none. The message never quotes the file.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: it is a symbolic link", path.display())]
    Link { path: PathBuf },
    #[error("{}: it is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: it belongs to another user", path.display())]
    NotOwned { path: PathBuf },
    #[error("{}: other users may read or write it (mode {mode:03o})", path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    #[error("{}: it is longer than {MAX_BYTES} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: it does not hold one token", path.display())]
    NotAToken { path: PathBuf },
}

impl PrivateFileError {
    /// What the user can do.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { .. } => "name a file that this user can read".to_owned(),
            Self::Link { .. } => "name the file itself".to_owned(),
            Self::NotAFile { .. } | Self::TooLong { .. } => {
                "name a regular file that holds the secret and nothing else".to_owned()
            }
            Self::NotOwned { path } => format!("make it yours: chown $(id -u) {}", path.display()),
            Self::TooOpen { path, .. } => format!("chmod 600 {}", path.display()),
            Self::NotAToken { .. } => {
                "write the token on one line, without spaces and nothing else".to_owned()
            }
        }
    }
}

/// Reads a file that holds one secret, without the white space around it.
///
/// The file is opened once, and the open file is checked, so that it cannot be exchanged in between.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, PrivateFileError> {
    // Does not follow a link, and does not wait for the writer of a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let path = || path.to_owned();
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => PrivateFileError::Link { path: path() },
        _ => PrivateFileError::Unreadable { path: path(), error },
    })?;
    check_private(&path(), &file)?;
    let mut secret = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut secret);
    read.map_err(|error| PrivateFileError::Unreadable { path: path(), error })?;
    if secret.len() as u64 > MAX_BYTES {
        return Err(PrivateFileError::TooLong { path: path() });
    }
    Ok(secret.trim_ascii().to_owned())
}

/// Reads a file that holds one token, as it is sent in a header.
pub fn read_token(path: &Path) -> Result<String, PrivateFileError> {
    let token = String::from_utf8(read_secret(path)?).ok();
    let is_token = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    token.filter(is_token).ok_or_else(|| PrivateFileError::NotAToken { path: path.to_owned() })
}

/// Checks that an open file is a regular one of this user or of root, and that other users have no permissions.
pub fn check_private(path: &Path, file: &File) -> Result<(), PrivateFileError> {
    let path = || path.to_owned();
    let metadata = file.metadata().map_err(|error| PrivateFileError::Unreadable { path: path(), error })?;
    if !metadata.is_file() {
        return Err(PrivateFileError::NotAFile { path: path() });
    }
    if metadata.uid() != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(PrivateFileError::NotOwned { path: path() });
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(PrivateFileError::TooOpen { path: path(), mode: metadata.mode() & 0o777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::current_exe().unwrap().with_extension(format!("private-{name}"));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        directory
    }

    fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_secret_is_read_without_the_space_around_it() {
        let path = directory("read").join("secret");
        for mode in [0o600, 0o400] {
            write(&path, b" \n a b\xff \r\n", mode);
            assert_eq!(read_secret(&path).unwrap(), b"a b\xff");
        }
    }

    #[test]
    fn a_file_that_others_may_use_or_that_is_none_is_refused() {
        let directory = directory("refused");
        let path = directory.join("secret");
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601] {
            write(&path, "secret", mode);
            let error = read_secret(&path).unwrap_err();
            assert!(matches!(error, PrivateFileError::TooOpen { .. }), "{error}");
            assert_eq!(error.hint(), format!("chmod 600 {}", path.display()));
        }
        write(&path, "secret", 0o600);
        read_secret(&path).expect("the control");
        let link = directory.join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(read_secret(&link), Err(PrivateFileError::Link { .. })));
        assert!(matches!(read_secret(&directory), Err(PrivateFileError::NotAFile { .. })));
        assert!(matches!(read_secret(&directory.join("none")), Err(PrivateFileError::Unreadable { .. })));
        write(&path, vec![b'x'; 64 * 1024 + 1], 0o600);
        assert!(matches!(read_secret(&path), Err(PrivateFileError::TooLong { .. })));
    }

    #[test]
    fn a_token_is_one_word() {
        let path = directory("token").join("token");
        write(&path, "a-token+/=\n", 0o600);
        assert_eq!(read_token(&path).unwrap(), "a-token+/=");
        for other in ["", " \n", "two words", "two\nlines", "tökën"] {
            write(&path, other, 0o600);
            assert!(matches!(read_token(&path), Err(PrivateFileError::NotAToken { .. })), "{other:?}");
        }
    }
}
