//! Follows the symbolic links of a path one by one, as the kernel would.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType};

/// The kernel follows as many links in one path.
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The path without links.
    Found(PathBuf),
    /// It does not exist. The existing part is without links, the rest as written.
    Missing(PathBuf),
    /// There are too many links, or `link` refused to follow one.
    Refused,
}

/// Follows an absolute path. Calls `link` with the place and the target of each link on the way; if it returns false,
/// the link is not followed.
pub(crate) fn follow(path: &Path, link: &mut dyn FnMut(&Path, &OsStr) -> bool) -> Destination {
    let mut place = PathBuf::from("/");
    let mut rest = names(path);
    let mut followed = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            place.pop();
            continue;
        }
        place.push(&name);
        let Ok(stat) = rustix::fs::statat(CWD, &place, AtFlags::SYMLINK_NOFOLLOW) else {
            place.extend(rest);
            return Destination::Missing(place);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            continue;
        }
        let Some(target) = target_of(&place) else { return Destination::Refused };
        followed += 1;
        if followed > MAX_LINKS || !link(&place, &target) {
            return Destination::Refused;
        }
        place.pop();
        if Path::new(&target).is_absolute() {
            place = PathBuf::from("/");
        }
        for name in names(Path::new(&target)).into_iter().rev() {
            rest.push_front(name);
        }
    }
    Destination::Found(place)
}

/// The target of a link, as it is written.
pub(crate) fn target_of(link: &Path) -> Option<OsString> {
    let target = rustix::fs::readlinkat(CWD, link, Vec::new()).ok()?;
    Some(OsString::from_vec(target.into_bytes()))
}

/// The names of a path, with `..` as a name.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_told() {
        let base = crate::test_directory::directory("link-walk").canonicalize().unwrap();
        std::fs::create_dir_all(base.join("real/deep")).unwrap();
        symlink("real", base.join("one")).unwrap();
        symlink(base.join("one/deep/../deep"), base.join("two")).unwrap();
        let mut links = Vec::new();
        let mut note = |place: &Path, _: &OsStr| {
            links.push(place.to_owned());
            true
        };
        let found = follow(&base.join("two/file"), &mut note);
        assert_eq!(found, Destination::Missing(base.join("real/deep/file")));
        assert_eq!(links, [base.join("two"), base.join("one")]);
        let found = follow(&base.join("one/deep"), &mut |_, _| true);
        assert_eq!(found, Destination::Found(base.join("real/deep")));
        assert_eq!(follow(&base.join("one/deep"), &mut |_, _| false), Destination::Refused);
        symlink("loop", base.join("loop")).unwrap();
        assert_eq!(follow(&base.join("loop"), &mut |_, _| true), Destination::Refused);
    }
}
