//! What the user's own package managers have downloaded already. The lock files of a workspace say what of it the
//! workspace needs, and that is copied into its kept caches, so that it is not downloaded again. Nothing private comes
//! along: a project gets crates of the public registry, and packages of npm whose hash it knows.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustix::fs::{FileType, Mode, OFlags};
use serde::Deserialize;

use crate::host_environment::HostEnvironment;
use crate::paths::VettedDirectory;
use crate::private_tree::PrivateTree;
use crate::session_directory::hexadecimal;
use crate::tool_caches::ToolCaches;

const CARGO_LOCK: &str = "Cargo.lock";
const NPM_LOCK: &str = "package-lock.json";
const MAX_LOCK_FILE: u64 = 16 * 1024 * 1024;
/// Cargo's directories for the public registry begin with this.
const PUBLIC_REGISTRY: &str = "index.crates.io-";
const PUBLIC_SOURCES: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/// Copies what the lock files name, unless that was done for these lock files before.
pub(super) fn fill(
    caches: &ToolCaches,
    scope: &VettedDirectory,
    user: Option<u32>,
    host: &HostEnvironment,
) -> io::Result<()> {
    let root = scope.open(OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
    let locks = [CARGO_LOCK, NPM_LOCK].map(|name| LockFile::open(&root, name));
    let state: String = locks.iter().flatten().map(|lock| lock.state.as_str()).collect();
    if state.is_empty() || !caches.is_new_filling(&state) {
        return Ok(());
    }
    let kept = PrivateTree::open(caches.directory(), user)?;
    let [cargo, npm] = locks.map(|lock| lock.and_then(LockFile::text));
    if let (Some(lock), Some(home)) = (cargo, super::cargo_home::of_user(host)) {
        copy(&home, &crates_of(&lock, &home), &kept.make_directory("cargo")?);
    }
    if let (Some(lock), Some(cache)) = (npm, npm_cache_of(host)) {
        copy(&cache, &npm_contents_of(&lock), &kept.make_directory("npm")?);
    }
    caches.note_filling(&state)
}

/// Copies the files that are there. One that cannot be copied is downloaded by the command that needs it.
fn copy(from: &Path, files: &[PathBuf], into: &PrivateTree) {
    for path in files {
        let copied = File::open(from.join(path)).and_then(|original| into.add_copy(path, &original));
        match copied {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path = %path.display(), %error, "a file of the user's cache is not copied");
            }
            _ => {}
        }
    }
}

/// A file of the workspace that names packages.
struct LockFile {
    file: File,
    /// Differs when the file has changed.
    state: String,
}

impl LockFile {
    /// Opens it if it is a plain file of a sane size; a session may have left anything under that name.
    fn open(root: impl AsFd, name: &str) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(root, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_sane = u64::try_from(stat.st_size).is_ok_and(|size| size <= MAX_LOCK_FILE);
        let state =
            format!("{name} {} {} {}.{}\n", stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        (is_plain && is_sane).then(|| Self { file: file.into(), state })
    }

    fn text(self) -> Option<String> {
        let mut text = String::new();
        self.file.take(MAX_LOCK_FILE).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

struct LockedCrate {
    name: String,
    version: String,
}

impl LockedCrate {
    /// Takes the entry of a public crate. The names become parts of paths.
    fn public(package: &toml_edit::Table) -> Option<Self> {
        let text = |key: &str| package.get(key)?.as_str();
        let is_word = |text: &&str| {
            let mut characters = text.chars();
            !text.is_empty()
                && !text.starts_with('.')
                && characters.all(|c| c.is_ascii_alphanumeric() || "-_+.".contains(c))
        };
        let name = text("name").filter(is_word)?.to_owned();
        let version = text("version").filter(is_word)?.to_owned();
        PUBLIC_SOURCES.contains(&text("source")?).then_some(Self { name, version })
    }

    /// Where the registry's index keeps the entry of the crate.
    fn index_entry(&self) -> PathBuf {
        let name = self.name.to_ascii_lowercase();
        match name.len() {
            1 => PathBuf::from("1").join(name),
            2 => PathBuf::from("2").join(name),
            3 => Path::new("3").join(&name[..1]).join(&name),
            _ => Path::new(&name[..2]).join(&name[2..4]).join(&name),
        }
    }
}

/// The files in a home of Cargo that hold the public crates of a lock file.
fn crates_of(lock: &str, home: &Path) -> Vec<PathBuf> {
    let Ok(lock) = lock.parse::<toml_edit::DocumentMut>() else { return Vec::new() };
    let packages = lock.get("package").and_then(toml_edit::Item::as_array_of_tables);
    let crates: Vec<_> = packages.into_iter().flatten().filter_map(LockedCrate::public).collect();
    let registries = std::fs::read_dir(home.join("registry/cache")).into_iter().flatten().flatten();
    let is_public = |name: &OsString| name.to_string_lossy().starts_with(PUBLIC_REGISTRY);
    let mut files = Vec::new();
    for registry in registries.map(|entry| entry.file_name()).filter(is_public) {
        let cache = Path::new("registry/cache").join(&registry);
        let index = Path::new("registry/index").join(&registry);
        files.push(index.join("config.json"));
        for locked in &crates {
            files.push(cache.join(format!("{}-{}.crate", locked.name, locked.version)));
            files.push(index.join(".cache").join(locked.index_entry()));
        }
    }
    files
}

#[derive(Deserialize)]
struct NpmLock {
    #[serde(default)]
    packages: BTreeMap<String, LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    #[serde(default)]
    integrity: Option<String>,
}

/// The files in a cache of npm that hold the packages of a lock file. npm finds them by their hash.
fn npm_contents_of(lock: &str) -> Vec<PathBuf> {
    let Ok(lock) = serde_json::from_str::<NpmLock>(lock) else { return Vec::new() };
    let hashes = lock.packages.values().filter_map(|package| package.integrity.as_deref());
    hashes.flat_map(str::split_whitespace).filter_map(npm_content).collect()
}

fn npm_content(integrity: &str) -> Option<PathBuf> {
    let hash = BASE64_STANDARD.decode(integrity.strip_prefix("sha512-")?).ok()?;
    let hash = hexadecimal(&hash);
    let parts = Path::new("_cacache/content-v2/sha512").join(hash.get(..2)?).join(hash.get(2..4)?);
    Some(parts.join(hash.get(4..)?))
}

fn npm_cache_of(host: &HostEnvironment) -> Option<PathBuf> {
    let named = ["npm_config_cache", "NPM_CONFIG_CACHE"];
    let named = named.iter().find_map(|name| host.environment.get(OsStr::new(name))).map(PathBuf::from);
    named.or_else(|| Some(host.home.as_ref()?.join(".npm")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
version = 4
[[package]]
name = "serde"
version = "1.0.0+build"
source = "registry+https://github.com/rust-lang/crates.io-index"
[[package]]
name = "own"
version = "0.1.0"
[[package]]
name = "secret"
version = "1.0.0"
source = "registry+https://registry.example.org/index"
[[package]]
name = "../../credentials"
version = "1.0.0"
source = "registry+https://github.com/rust-lang/crates.io-index"
[[package]]
name = "abc"
version = "1/../../x"
source = "registry+https://github.com/rust-lang/crates.io-index"
"#;

    #[test]
    fn only_public_crates_are_named_and_only_in_the_public_registry() {
        let home = crate::test_directory::directory("users-crates");
        for registry in ["index.crates.io-6f17d22bba15001f", "registry.example.org-1"] {
            std::fs::create_dir_all(home.join("registry/cache").join(registry)).unwrap();
        }
        let files = crates_of(LOCK, &home);
        let expected = [
            "registry/index/index.crates.io-6f17d22bba15001f/config.json",
            "registry/cache/index.crates.io-6f17d22bba15001f/serde-1.0.0+build.crate",
            "registry/index/index.crates.io-6f17d22bba15001f/.cache/se/rd/serde",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
    }

    #[test]
    fn a_package_of_npm_is_found_by_its_hash() {
        let lock = r#"{"packages": {"": {}, "node_modules/a": {"integrity": "sha512-AAECAw=="},
                       "node_modules/b": {"integrity": "sha512-../../x"}}}"#;
        let expected = Path::new("_cacache/content-v2/sha512/00/01/0203");
        assert_eq!(npm_contents_of(lock), [expected]);
        assert!(npm_contents_of("{\"packages\": 7}").is_empty() && npm_contents_of("").is_empty());
    }

    #[test]
    fn a_lock_file_that_is_none_is_not_waited_for() {
        let directory = crate::test_directory::directory("users-lock");
        let root = VettedDirectory::own(&directory).unwrap().open(OFlags::PATH | OFlags::DIRECTORY).unwrap();
        let opens = |name: &str| LockFile::open(&root, name).is_some();
        std::fs::write(directory.join("plain"), "").unwrap();
        std::os::unix::fs::symlink("plain", directory.join("link")).unwrap();
        rustix::fs::mknodat(&root, "pipe", FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(opens("plain"), "the control");
        assert!(!opens("link") && !opens("pipe") && !opens("missing"));
    }
}
