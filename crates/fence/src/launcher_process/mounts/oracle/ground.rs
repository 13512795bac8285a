//! The files that the policies of the oracle speak of.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::paths::VettedDirectory;

const FILES: &[&str] = &[
    "home/.ssh/id",
    "home/.config/gh/hosts",
    "home/.config/app/deep/settings",
    "home/.config/app/settings",
    "home/project/src/main",
    "home/project/secrets/key",
    "home/project/.git/config",
    "home/plain",
    "own/sessions/1/home/file",
    "own/packages/tree/program",
    "own/packages/tree/secret/key",
    "share/doc/page",
];

const LINKS: &[(&str, &str)] = &[
    ("home/to-ssh", ".ssh"),
    ("home/.config/app/away", "../../.ssh"),
    ("home/.config/app/near", "deep"),
    ("home/project/escape", "../.ssh"),
    ("share/out", "../home/.config"),
    ("share/round", "round"),
];

pub(super) struct Ground {
    /// The real paths of all files.
    pub(super) files: Vec<PathBuf>,
    pub(super) directories: Vec<VettedDirectory>,
    /// All paths, those of links too, and some that do not exist.
    pub(super) paths: Vec<PathBuf>,
}

/// The ground of this process, made once.
pub(super) fn ground() -> &'static Ground {
    static GROUND: OnceLock<Ground> = OnceLock::new();
    GROUND.get_or_init(make)
}

fn make() -> Ground {
    // The directories above have few entries, since the survey reads them all.
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plan-oracle");
    for file in FILES.iter().map(|file| base.join(file)) {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(file, "").expect("a file");
    }
    for (link, target) in LINKS {
        // It is there from an earlier run, or from one that runs now.
        let _ = std::os::unix::fs::symlink(target, base.join(link));
    }
    let base = base.canonicalize().expect("the ground");
    let files: Vec<PathBuf> = FILES.iter().map(|file| base.join(file)).collect();
    let mut above: Vec<PathBuf> =
        files.iter().flat_map(|file| file.ancestors().skip(1)).map(Path::to_owned).collect();
    above.retain(|path| path.starts_with(&base));
    above.sort();
    above.dedup();
    let vetted = |path: &PathBuf| VettedDirectory::own(path).expect("a directory");
    let directories = above.iter().map(vetted).collect();
    let links = LINKS.iter().map(|(link, _)| base.join(link));
    let missing =
        ["home/.config/missing", "missing/deep", "home/project/../.ssh"].map(|path| base.join(path));
    let paths = above.iter().chain(&files).cloned().chain(links).chain(missing).chain(["/".into()]).collect();
    Ground { files, directories, paths }
}
