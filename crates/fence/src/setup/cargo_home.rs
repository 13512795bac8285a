//! Cargo's home inside a fence. Cargo takes the paths of downloaded sources for part of what it builds, so a home at
//! another path would have everything in `target/` built again by the command, and then again by its user. The kept
//! cache of the workspace therefore appears at the place of the user's own home.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::host_environment::HostEnvironment;
use crate::paths::VettedDirectory;
use crate::policy::Mirror;
use crate::private_tree::PrivateTree;
use crate::tool_caches::ToolCaches;

/// The user's own programs, among them rustup's.
const PROGRAMS: &str = "bin";
/// Settings that change what is built, under both names that Cargo reads.
const SETTINGS: [&str; 2] = ["config.toml", "config"];
/// Settings with one of these words in them may hold a key.
const SECRET_WORDS: [&str; 5] = ["token", "secret", "credential", "password", "proxy"];

/// Makes the kept home of Cargo, and says where it appears. Returns `None` for a user without a home of Cargo.
pub(super) fn mirror(
    caches: &ToolCaches,
    scope: &[VettedDirectory],
    user: Option<u32>,
    host: &HostEnvironment,
) -> io::Result<Option<Mirror>> {
    let kept = PrivateTree::open(caches.directory(), user)?.make_directory("cargo")?;
    let Some(at) = of_user(host) else { return Ok(None) };
    let meets = |root: &VettedDirectory| at.starts_with(root.path()) || root.path().starts_with(&at);
    if scope.iter().any(meets) {
        return Ok(None);
    }
    kept.make_directory(PROGRAMS)?;
    for name in SETTINGS {
        if let Some(text) = harmless_settings(&at.join(name)) {
            kept.replace_file(name, &text)?;
        }
    }
    let source = kept.vetted(caches.directory().join("cargo"))?;
    Ok(Some(Mirror { source, at, shown: vec![PROGRAMS.to_owned()] }))
}

/// The user's own home of Cargo, if there is one.
pub(super) fn of_user(host: &HostEnvironment) -> Option<PathBuf> {
    let named = host.environment.get(OsStr::new("CARGO_HOME")).map(PathBuf::from);
    let home = named.or_else(|| Some(host.home.as_ref()?.join(".cargo")))?;
    // A link on the way would have to be there inside too.
    let is_plain = home.canonicalize().is_ok_and(|real| real == home) && home.is_dir();
    is_plain.then_some(home)
}

fn harmless_settings(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let lower = text.to_ascii_lowercase();
    (!SECRET_WORDS.iter().any(|word| lower.contains(word))).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use rustix::fs::OFlags;

    use super::*;
    use crate::session_directory::OwnDirectory;

    /// Another session of the same workspace runs while the mirror is made.
    #[test]
    fn a_home_that_is_swapped_for_a_link_is_not_mounted() {
        let base = crate::test_directory::directory("cargo-home").canonicalize().unwrap();
        std::fs::create_dir_all(base.join("user/.cargo")).unwrap();
        std::fs::create_dir_all(base.join("outside")).unwrap();
        let own = OwnDirectory::open(Some(&base.join("caches")), None).unwrap();
        let mut host = HostEnvironment::of_this_process().unwrap();
        host.environment = Arc::new(BTreeMap::new());
        host.home = Some(base.join("user"));
        let caches = ToolCaches::open(&own, Path::new("/srv/project"), "", None).unwrap();
        let place = caches.directory().join("cargo");

        let mirror_now = || mirror(&caches, &[], None, &host).unwrap().unwrap();
        let before = mirror_now();
        assert_eq!(
            (before.source.path(), before.at.as_path()),
            (place.as_path(), &*base.join("user/.cargo"))
        );
        before.source.open(OFlags::PATH).unwrap();
        std::fs::rename(&place, caches.directory().join("away")).unwrap();
        symlink(base.join("outside"), &place).unwrap();
        assert!(before.source.open(OFlags::PATH).is_err(), "it is looked at again when it is mounted");
        // The next one puts things right, and makes nothing through the link.
        mirror_now().source.open(OFlags::PATH).unwrap();
        assert!(place.symlink_metadata().unwrap().is_dir());
        assert_eq!(std::fs::read_dir(base.join("outside")).unwrap().count(), 0);
    }

    #[test]
    fn settings_that_may_hold_a_key_are_not_copied() {
        let base = crate::test_directory::directory("cargo-settings");
        let copied = |text: &str| {
            std::fs::write(base.join("config.toml"), text).unwrap();
            harmless_settings(&base.join("config.toml")).is_some()
        };
        assert!(copied("[build]\njobs = 3\n"));
        assert!(!copied("[registries.own]\nTOKEN = \"x\"\n"));
        assert!(!copied("[http]\nproxy = \"http://user:x@example.org\"\n"));
    }
}
