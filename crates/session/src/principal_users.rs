//! A user of this host for each principal, so that their servers are apart even where a fence fails. The first session
//! of a principal takes the next number of a range. A number is given once: its user owns files.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use identity::Principal;
use parking_lot::Mutex;
use thiserror::Error;

/// The numbers that users may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRange(RangeInclusive<u32>);

/// Why a text is no range of users.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("it is no range of user numbers above 0 with room for two, such as 300000-365535")]
pub struct UserRangeError;

impl FromStr for UserRange {
    type Err = UserRangeError;

    fn from_str(text: &str) -> Result<Self, UserRangeError> {
        let (first, last) = text.split_once('-').ok_or(UserRangeError)?;
        let number = |text: &str| text.trim().parse().map_err(|_| UserRangeError);
        let (first, last): (u32, u32) = (number(first)?, number(last)?);
        // The highest number means "no user" to the kernel.
        if 0 < first && first < last && last < u32::MAX {
            Ok(Self(first..=last))
        } else {
            Err(UserRangeError)
        }
    }
}

impl UserRange {
    /// The first user of the host's list (`/etc/passwd`) whose number lies in the range.
    pub fn taken_by<'a>(&self, passwd: &'a str) -> Option<&'a str> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let number: u32 = fields.nth(1)?.parse().ok()?;
            self.0.contains(&number).then_some(name)
        })
    }
}

/// The users that principals have.
#[derive(Debug)]
pub struct PrincipalUsers {
    range: UserRange,
    file: PathBuf,
    known: Mutex<BTreeMap<String, u32>>,
}

/// Why a principal gets no user.
#[derive(Debug, Error)]
pub enum PrincipalUsersError {
    #[error("{} cannot be used: {reason}", .file.display())]
    File { file: PathBuf, reason: io::Error },
    #[error("{} is damaged: {reason}", .file.display())]
    Damaged { file: PathBuf, reason: serde_json::Error },
    #[error("all users of the range are given to principals")]
    Exhausted,
}

impl PrincipalUsersError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "check the permissions of the directory, and the space on its disk",
            Self::Damaged { .. } => {
                "restore it from a backup: a user that is given to a second principal owns files of the first"
            }
            Self::Exhausted => "widen --principal-uids",
        }
    }
}

impl PrincipalUsers {
    /// Reads the users that were given before. Makes the directory of the file.
    pub fn open(file: PathBuf, range: UserRange) -> Result<Self, PrincipalUsersError> {
        if let Some(directory) = file.parent() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|reason| PrincipalUsersError::File { file: file.clone(), reason })?;
        }
        let known = Mutex::new(read(&file)?);
        Ok(Self { range, file, known })
    }

    /// The user of processes that serve no single principal.
    pub fn common(&self) -> u32 {
        *self.range.0.start()
    }

    /// The user of a principal: the one that it had before, or the next.
    pub(crate) fn user_of(&self, principal: &Principal) -> Result<u32, PrincipalUsersError> {
        let mut known = self.known.lock();
        if let Some(user) = known.get(principal.as_str()) {
            return Ok(*user);
        }
        let failed = |reason| PrincipalUsersError::File { file: self.file.clone(), reason };
        // Other gateways of this host may give users, too.
        let _lock = lock(&self.file.with_extension("lock")).map_err(failed)?;
        *known = read(&self.file)?;
        if let Some(user) = known.get(principal.as_str()) {
            return Ok(*user);
        }
        let newest = known.values().copied().filter(|user| self.range.0.contains(user)).max();
        let user = newest.unwrap_or(self.common()) + 1;
        if !self.range.0.contains(&user) {
            return Err(PrincipalUsersError::Exhausted);
        }
        let mut with_it = known.clone();
        with_it.insert(principal.as_str().to_owned(), user);
        write(&self.file, &with_it).map_err(failed)?;
        *known = with_it;
        tracing::info!(%principal, uid = user, "the principal has a user of its own from now on");
        Ok(user)
    }
}

fn read(file: &Path) -> Result<BTreeMap<String, u32>, PrincipalUsersError> {
    match std::fs::read(file) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|reason| PrincipalUsersError::Damaged { file: file.to_owned(), reason }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(reason) => Err(PrincipalUsersError::File { file: file.to_owned(), reason }),
    }
}

fn lock(path: &Path) -> io::Result<File> {
    let file = private().create(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Replaces the file as a whole, once its text is on the disk.
fn write(file: &Path, users: &BTreeMap<String, u32>) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut written = private().create(true).truncate(true).open(&new)?;
    serde_json::to_writer_pretty(&written, users)?;
    written.write_all(b"\n")?;
    written.sync_all()?;
    std::fs::rename(&new, file)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PathBuf {
        let directory = std::env::current_exe().unwrap().with_file_name(format!("principal-users-{name}"));
        let _ = std::fs::remove_dir_all(&directory);
        directory.join("users.json")
    }

    fn open(file: &Path, range: &str) -> PrincipalUsers {
        PrincipalUsers::open(file.to_owned(), range.parse().unwrap()).unwrap()
    }

    fn user(users: &PrincipalUsers, name: &str) -> Result<u32, PrincipalUsersError> {
        users.user_of(&Principal::named(name).unwrap())
    }

    #[test]
    fn a_principal_keeps_its_user_over_restarts_and_beside_other_gateways() {
        let file = file("kept");
        let (first, second) = (open(&file, "500-510"), open(&file, "500-510"));
        assert_eq!(user(&first, "alice").unwrap(), 501);
        assert_eq!(user(&second, "bob").unwrap(), 502);
        assert_eq!(user(&first, "bob").unwrap(), 502);
        assert_eq!(user(&second, "alice").unwrap(), 501);
        let restarted = open(&file, "500-510");
        assert_eq!(user(&restarted, "carol").unwrap(), 503);
        assert_eq!(user(&restarted, "alice").unwrap(), 501);
        assert_eq!(first.common(), 500);
    }

    #[test]
    fn no_user_is_given_twice() {
        let users = open(&file("range"), "500-501");
        assert_eq!(user(&users, "alice").unwrap(), 501);
        assert!(matches!(user(&users, "bob"), Err(PrincipalUsersError::Exhausted)));
        assert_eq!(user(&users, "alice").unwrap(), 501);
    }

    #[test]
    fn a_damaged_file_is_no_empty_one() {
        let file = file("damaged");
        open(&file, "500-501");
        std::fs::write(&file, "{").unwrap();
        let opened = PrincipalUsers::open(file, "500-501".parse().unwrap());
        assert!(matches!(opened, Err(PrincipalUsersError::Damaged { .. })));
    }

    #[test]
    fn ranges_are_checked() {
        for wrong in ["", "5", "0-5", "5-5", "6-5", "5-4294967295", "-5-6", "a-b"] {
            assert_eq!(wrong.parse::<UserRange>(), Err(UserRangeError), "{wrong}");
        }
        let range: UserRange = "1000-1005".parse().unwrap();
        let passwd = "root:x:0:0::/root:/bin/sh\nada:x:1003:1003::/home/ada:/bin/sh\n";
        assert_eq!(range.taken_by(passwd), Some("ada"));
        assert_eq!("300000-365535".parse::<UserRange>().unwrap().taken_by(passwd), None);
    }
}
