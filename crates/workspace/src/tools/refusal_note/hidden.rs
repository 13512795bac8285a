//! The note on a path that a command did not find because the fence does not show it. Whether it exists outside is
//! neither known here nor said: the root of the fence tells which places it shows, and nothing else is asked.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fence::lexical;

use super::FenceFacts;

pub(super) fn note_on_hidden(line: &str, facts: &FenceFacts) -> Option<String> {
    // The apostrophe of dash would count as a quotation mark.
    let line = line.replace("can't cd to", "No such file or directory:");
    let path = fence::missing_path(&line).filter(|path| path.is_absolute())?;
    let path = lexical(&path);
    facts.hides(&path).then(|| {
        let shown = path.display();
        format!(
            "[ringfence: {shown} is outside this session's fence and not shown; if it exists, the operator can show it \
             with --read {shown}]"
        )
    })
}

impl FenceFacts {
    /// Whether the fence has a root of its own in which nothing is shown at this path.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let is_own = || self.roots.iter().chain(&self.private).any(|own| path.starts_with(own));
        let is_system =
            || ["/dev", "/proc", "/sys", "/run", "/var/tmp"].iter().any(|place| path.starts_with(place));
        self.has_own_root && !is_own() && !is_system() && is_outside_of_what_is_shown(path, Path::new("/"))
    }
}

/// Whether a path is missing where the root itself would have to have it: what the root shows is mounted on it, so there
/// the nearest directory that exists is of another device.
fn is_outside_of_what_is_shown(path: &Path, root: &Path) -> bool {
    let is_missing = |path: &Path| path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let Some(above) = path.ancestors().find(|path| !is_missing(path)).filter(|above| *above != path) else {
        return false;
    };
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    device(above).is_some_and(|device_above| Some(device_above) == device(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_hidden_only_where_the_root_itself_lacks_it() {
        // The directory of this test stands for the root of a fence, and /proc for what it shows.
        let root = std::env::temp_dir();
        assert!(is_outside_of_what_is_shown(&root.join("missing/of/root"), &root));
        assert!(!is_outside_of_what_is_shown(&root, &root), "it exists");
        assert!(!is_outside_of_what_is_shown(Path::new("/proc/self/missing"), &root), "it is really missing");
    }

    #[test]
    fn without_a_root_of_its_own_nothing_is_said_of_what_is_missing() {
        let facts = FenceFacts { has_own_root: false, ..FenceFacts::for_tests() };
        assert_eq!(note_on_hidden("cat: /srv/data/missing: No such file or directory", &facts), None);
    }

    #[test]
    fn only_absolute_paths_outside_are_looked_at() {
        let facts = FenceFacts { has_own_root: true, ..FenceFacts::for_tests() };
        for line in [
            "cat: missing: No such file or directory",
            "cat: ../missing: No such file or directory",
            "cat: /home/ada/project/missing: No such file or directory",
            "cat: /home/ada/other/../project/missing: No such file or directory",
            "cat: /tmp/missing: No such file or directory",
            "cat: /proc/1/missing: No such file or directory",
            "/home/ada/other/x is here",
        ] {
            assert_eq!(note_on_hidden(line, &facts), None, "{line}");
        }
    }
}
