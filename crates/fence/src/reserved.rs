//! The paths that ringfence itself trusts: its configuration, tokens and keys, its logs and data, its own program. No
//! scope may contain one of them, lie in one, or be another name of one, because a server in that scope could change
//! what ringfence does.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::RwLock;

use crate::link_walk::{Destination, follow};
use crate::mount_table::MountTable;
use crate::paths::{ReservedPath, VettedDirectory};
use crate::scope_scan::{FileIdentity, first_with_name_in};

/// What the running program is called.
pub(crate) const PROGRAM: &str = "ringfence's program";

/// All of them. Paths can be added while scopes are vetted, since a configuration that is read again names new files.
#[derive(Debug, Default)]
pub struct Reserved(RwLock<Vec<ReservedPath>>);

impl Reserved {
    /// Adds a path, and every link on the way to it. It need not exist yet.
    pub fn add(&self, what: &'static str, path: &Path) {
        let Ok(path) = std::path::absolute(path) else { return };
        let mut places = Vec::new();
        let destination = follow(&path, &mut |link, _| {
            places.push(link.to_owned());
            true
        });
        if let Destination::Found(place) | Destination::Missing(place) = destination {
            places.push(place);
        }
        let mut reserved = self.0.write();
        for path in places {
            if !reserved.iter().any(|known| known.path == path) {
                reserved.push(ReservedPath { what, path });
            }
        }
    }

    /// The first reserved path that a scope without links would reach.
    pub(crate) fn reached_from(&self, vetted: &VettedDirectory) -> Option<ReservedPath> {
        let (reserved, scope) = (self.0.read(), vetted.path());
        let by_name =
            |reserved: &&ReservedPath| reserved.path.starts_with(scope) || scope.starts_with(&reserved.path);
        if let Some(found) = reserved.iter().find(by_name) {
            return Some(found.clone());
        }
        let table = MountTable::read();
        let of_scope = table.locations(scope);
        let is_same_place = |reserved: &&ReservedPath| {
            table
                .locations(&reserved.path)
                .iter()
                .any(|place| of_scope.iter().any(|scope| scope.contains(place) || place.contains(scope)))
        };
        if let Some(found) = reserved.iter().find(is_same_place) {
            return Some(found.clone());
        }
        // Files with several hard links are rare, so the scope is seldom searched for their names.
        let linked: Vec<(FileIdentity, &ReservedPath)> =
            reserved.iter().filter_map(|reserved| Some((linked_file(reserved)?, reserved))).collect();
        let files: Vec<FileIdentity> = linked.iter().map(|(file, _)| *file).collect();
        let found = if files.is_empty() { None } else { first_with_name_in(vetted, &files) };
        found.map(|position| linked[position].1.clone())
    }
}

/// A file that has another name. The kernel lets no process write a program that runs, whatever name it uses.
fn linked_file(reserved: &ReservedPath) -> Option<FileIdentity> {
    let metadata = reserved.path.symlink_metadata().ok()?;
    let is_linked = metadata.is_file() && metadata.nlink() > 1 && reserved.what != PROGRAM;
    is_linked.then(|| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn reached_from(reserved: &Reserved, scope: &Path) -> Option<PathBuf> {
        let scope = VettedDirectory::own(scope).unwrap();
        reserved.reached_from(&scope).map(|reserved| reserved.path)
    }

    #[test]
    fn a_scope_reaches_what_is_in_it_around_it_and_behind_its_links() {
        let base = crate::test_directory::directory("reserved").canonicalize().unwrap();
        for directory in ["project", "etc", "state/deep", "logs", "other"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        std::fs::write(base.join("etc/servers.yaml"), "").unwrap();
        symlink(base.join("etc"), base.join("project/conf")).unwrap();
        let reserved = Reserved::default();
        reserved.add("the configuration", &base.join("project/conf/servers.yaml"));
        reserved.add("the data of servers", &base.join("state"));
        reserved.add("the audit log", &base.join("logs/audit.jsonl"));
        let reached = |scope: &str| reached_from(&reserved, &base.join(scope));
        assert_eq!(reached("project"), Some(base.join("project/conf")), "a server could replace the link");
        assert_eq!(reached("etc"), Some(base.join("etc/servers.yaml")));
        assert_eq!(reached("state/deep"), Some(base.join("state")));
        assert_eq!(reached("logs"), Some(base.join("logs/audit.jsonl")), "before it exists");
        assert_eq!(reached("other"), None);
    }

    #[test]
    fn a_scope_with_a_hard_link_of_a_reserved_file_reaches_it() {
        let base = crate::test_directory::directory("reserved-links").canonicalize().unwrap();
        for directory in ["etc", "project/deep", "other"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        let (file, program) = (base.join("etc/servers.yaml"), base.join("etc/ringfence"));
        std::fs::write(&file, "").unwrap();
        std::fs::write(&program, "").unwrap();
        std::fs::hard_link(&program, base.join("other/ringfence")).unwrap();
        let reserved = Reserved::default();
        reserved.add("the configuration", &file);
        reserved.add(PROGRAM, &program);
        let reached = |scope: &str| reached_from(&reserved, &base.join(scope));
        assert_eq!(reached("project"), None);
        std::fs::hard_link(&file, base.join("project/deep/innocent.yaml")).unwrap();
        assert_eq!(reached("project"), Some(file));
        assert_eq!(reached("other"), None, "a program that runs cannot be written");
    }
}
