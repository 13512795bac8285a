//! Vets the paths of a policy before anything runs: which directories may be a scope, and which paths are never
//! readable. Scopes are recorded by device and inode, which the launcher compares again.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::link_walk::{Held, Walk, open_without_links, walk};
use crate::raw_path;

/// Whole trees that belong to the system.
const SYSTEM_TREES: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
    "/System",
    "/Library",
    "/private/etc",
];

/// Directories that hold directories of several users; those inside may be scopes.
const SHARED_DIRECTORIES: &[&str] = &[
    "/",
    "/home",
    "/media",
    "/mnt",
    "/nix",
    "/opt",
    "/run",
    "/srv",
    "/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/tmp",
    "/Users",
    "/Applications",
    "/private",
    "/private/tmp",
    "/private/var",
];

/// Secrets and private data below the home directory, which no agent needs to read.
const SENSITIVE_IN_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".gcloud",
    ".kube",
    ".docker",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".vault-token",
    ".pki",
    ".terraform.d",
    ".config/op",
    ".password-store",
    ".1password",
    ".op",
    ".local/share/keyrings",
    ".config/google-chrome",
    ".config/chromium",
    ".config/microsoft-edge",
    ".config/BraveSoftware",
    ".config/vivaldi",
    ".config/opera",
    ".mozilla",
    "Library/Keychains",
    "Library/Cookies",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".rediscli_history",
    ".sqlite_history",
    ".lesshst",
    ".viminfo",
    ".local/share/fish/fish_history",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".gemini/google_accounts.json",
    ".config/github-copilot",
    ".copilot",
    ".config/Cursor",
    ".config/Code/User/globalStorage",
    ".continue",
    ".aider.conf.yml",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".config/rclone",
    ".s3cfg",
    ".boto",
    ".oci",
    ".config/doctl",
    ".config/hub",
    ".config/glab-cli",
    ".config/helm",
    ".config/containers",
    ".dockercfg",
    ".minikube",
    ".config/heroku",
    ".fly",
    ".config/netlify",
    ".local/share/com.vercel.cli",
    ".wrangler",
    ".config/.wrangler",
    ".supabase",
    ".config/stripe",
    ".config/ngrok",
    ".ngrok2",
    ".config/sops",
    ".config/age",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".config/1Password",
    ".local/share/kwalletd",
    ".thunderbird",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".var/app",
    ".zhistory",
    ".histfile",
    ".irb_history",
    ".local/share/zsh",
    ".local/share/atuin",
    ".config/nushell/history.txt",
    ".config/ringfence",
    ".local/state/ringfence",
    ".local/share/ringfence",
];

/// Directories of a home that hold settings or programs, beside those whose name begins with a dot.
const SETTINGS_IN_HOME: &[&str] = &["bin", "Library", "snap"];

/// What only root can read, so it matters only to a fence that root starts.
const SENSITIVE_FOR_ROOT: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/pki/entitlement",
    "/etc/pki/consumer",
];

/// A directory that was checked: its canonical path, and its identity beyond the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VettedDirectory {
    #[serde(with = "raw_path")]
    path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl VettedDirectory {
    /// A directory that ringfence made itself.
    pub fn own(path: &Path) -> Result<Self, ScopeError> {
        // Most have no link on their path, which the kernel can tell in one call.
        if let Some(held) = Held::without_links(path)
            && let Some(own) = Self::own_held(&held)
        {
            return Ok(own);
        }
        let canonical = path.canonicalize().map_err(|error| unreachable_path(path, &error))?;
        let metadata = canonical.metadata().map_err(|error| unreachable_path(path, &error))?;
        if !metadata.is_dir() {
            return Err(ScopeError::NotADirectory(path.to_owned()));
        }
        Ok(Self { path: canonical, device: metadata.dev(), inode: metadata.ino() })
    }

    /// A directory that is open, under the path that leads to it without links.
    pub(crate) fn of_descriptor(path: PathBuf, directory: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(directory)?;
        Ok(Self { path, device: stat.st_dev, inode: stat.st_ino })
    }

    /// A directory that is held, if it is one.
    pub(crate) fn own_held(held: &Held) -> Option<Self> {
        Self::of_descriptor(held.path().to_owned(), held.descriptor()).ok().filter(|_| held.is_directory())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the directory, if it is still the one that was vetted. A session whose scope lies around this one could put
    /// a link or another directory in its place.
    pub(crate) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match open_without_links(&self.path, flags) {
            // An older kernel, or another system. What is opened is compared.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                rustix::fs::open(&self.path, flags, Mode::empty())?
            }
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&directory)?;
        if (stat.st_dev, stat.st_ino) == (self.device, self.inode) {
            return Ok(directory);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "it is not the directory that it was before"))
    }
}

/// What tells a directory again after ringfence, or its host, was started anew. A path alone does not: another directory
/// may lie there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    #[serde(with = "raw_path")]
    path: PathBuf,
    inode: u64,
    /// Seconds and nanoseconds since 1970, where the file system remembers it.
    born: Option<(i64, u32)>,
    /// Numbers of devices are given anew when the host starts.
    device: u64,
    boot: String,
}

impl DirectoryIdentity {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the directory that was seen before.
    pub fn is_of(&self, directory: &VettedDirectory) -> bool {
        let Ok(now) = directory.identity() else { return false };
        let is_same_device = self.boot != now.boot || self.device == now.device;
        is_same_device && (&self.path, self.inode, self.born) == (&now.path, now.inode, now.born)
    }
}

impl VettedDirectory {
    /// What tells the directory again later.
    pub fn identity(&self) -> io::Result<DirectoryIdentity> {
        let directory = self.open(OFlags::PATH)?;
        Ok(DirectoryIdentity {
            path: self.path.clone(),
            inode: self.inode,
            born: born(&directory),
            device: self.device,
            boot: boot_id(),
        })
    }
}

fn born(directory: &OwnedFd) -> Option<(i64, u32)> {
    use rustix::fs::StatxFlags;
    let seen = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let is_known = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::BTIME);
    is_known.then_some((seen.stx_btime.tv_sec, seen.stx_btime.tv_nsec))
}

/// Names this start of the host's kernel. Empty where the kernel does not tell, so that devices are compared always.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// A file or directory that no scope may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedPath {
    /// What it is, as an error calls it: "the configuration".
    pub what: &'static str,
    /// Without links; or a link on the way to it, which is as good as the file.
    pub path: PathBuf,
}

impl fmt::Display for ReservedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.path.display())
    }
}

/// Why a directory cannot be a scope.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScopeError {
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} cannot be reached: {reason}", .path.display())]
    Unreachable { path: PathBuf, reason: String },
    #[error("{} is not writable for this user", .0.display())]
    NotWritable(PathBuf),
    #[error("{} belongs to another user, and inside a fence root has no capabilities to write it", .0.display())]
    AnothersOfRoot(PathBuf),
    #[error("{} belongs to the system", .0.display())]
    System(PathBuf),
    #[error("{} holds directories of others", .0.display())]
    Shared(PathBuf),
    #[error("{} is the home directory or contains it", .0.display())]
    Home(PathBuf),
    #[error("{} holds ringfence's own files", .0.display())]
    Ringfence(PathBuf),
    #[error("{} and {reserved} are not apart", .scope.display())]
    Reserved { scope: PathBuf, reserved: ReservedPath },
    #[error("{} holds settings or programs that a user's sessions start with", .0.display())]
    Settings(PathBuf),
}

impl ScopeError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => "create the directory first, or name another one",
            Self::NotADirectory(_) => "name the directory that the file is in",
            Self::Unreachable { .. } => "check the permissions of the directories above it",
            Self::AnothersOfRoot(_) => {
                "run ringfence as the user who owns it, or give principals users of their own with --principal-uids"
            }
            Self::NotWritable(_) => "choose a directory that you own, or run as its owner",
            Self::System(_) | Self::Shared(_) => {
                "name the directory of one project; a fence around the whole system would protect nothing"
            }
            Self::Home(_) => "name the directory of one project; the home directory holds keys and settings",
            Self::Ringfence(_) => "name the directory of one project",
            Self::Reserved { .. } => {
                "a server could change what ringfence trusts; move the file out of the directory, or name another \
                 directory"
            }
            Self::Settings(_) => {
                "what is written there runs outside the fence later; the operator can allow it with --allow-scope"
            }
        }
    }
}

/// Checks that a directory can be writable in a fence. `home` and `own` (ringfence's files) must not be in it.
pub fn vet_scope(
    path: &Path,
    home: Option<&Path>,
    own: Option<&Path>,
) -> Result<VettedDirectory, ScopeError> {
    let vetted = VettedDirectory::own(path)?;
    check_place(vetted.path(), home, own)?;
    rustix::fs::access(vetted.path(), Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|_| ScopeError::NotWritable(vetted.path().to_owned()))?;
    Ok(vetted)
}

/// Checks that a path without links is one that can be writable in a fence, without looking at what is there.
pub(crate) fn check_place(
    canonical: &Path,
    home: Option<&Path>,
    own: Option<&Path>,
) -> Result<(), ScopeError> {
    if SHARED_DIRECTORIES.iter().any(|shared| canonical == Path::new(shared)) {
        return Err(ScopeError::Shared(canonical.to_owned()));
    }
    if SYSTEM_TREES.iter().any(|system| canonical.starts_with(system)) {
        return Err(ScopeError::System(canonical.to_owned()));
    }
    if home.is_some_and(|home| real(home).starts_with(canonical)) {
        return Err(ScopeError::Home(canonical.to_owned()));
    }
    if own.map(real).is_some_and(|own| own.starts_with(canonical) || canonical.starts_with(&own)) {
        return Err(ScopeError::Ringfence(canonical.to_owned()));
    }
    Ok(())
}

/// Whether a directory is one of those below a home directory that hold settings, or programs of the search path.
pub(crate) fn holds_settings_of_a_user(path: &Path, home: Option<&Path>) -> bool {
    let below_home = home.and_then(|home| path.strip_prefix(real(home)).ok());
    let below_another = ["/home", "/Users"].iter().find_map(|homes| {
        let mut names = path.strip_prefix(homes).ok()?.components();
        names.next();
        Some(names.as_path())
    });
    let below_root = path.strip_prefix("/root").ok();
    [below_home, below_another, below_root].into_iter().flatten().any(|below| {
        let first =
            below.components().next().and_then(|first| first.as_os_str().to_str()).unwrap_or_default();
        first.starts_with('.') || SETTINGS_IN_HOME.contains(&first)
    })
}

/// Root may write everything, but not inside a fence, where it has no capabilities.
pub(crate) fn is_writable_in_fence(path: &Path) -> bool {
    !rustix::process::geteuid().is_root() || is_writable_without_capabilities(path)
}

fn is_writable_without_capabilities(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| {
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        (owner == 0 && mode & 0o200 != 0) || (group == 0 && mode & 0o020 != 0) || mode & 0o002 != 0
    })
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn unreachable_path(path: &Path, error: &io::Error) -> ScopeError {
    match error.kind() {
        io::ErrorKind::NotFound => ScopeError::Missing(path.to_owned()),
        io::ErrorKind::NotADirectory => ScopeError::NotADirectory(path.to_owned()),
        _ => ScopeError::Unreachable { path: path.to_owned(), reason: error.to_string() },
    }
}

/// One path that must not be readable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedPath {
    /// Without symbolic links.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    pub kind: DeniedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeniedKind {
    Directory,
    File,
    /// Does not exist now; denied when it appears.
    Missing,
}

impl DeniedPath {
    /// Both spellings of a path: where its name lies, and where it leads if it is a symbolic link.
    pub fn resolve(path: &Path) -> Vec<Self> {
        let Some(parent) = path.parent() else { return Vec::new() };
        Self::resolve_below(path, &walk(parent, &mut |_, _| true))
    }

    /// The same for many paths, which mostly lie in the same few directories: each of those is looked for once.
    pub(crate) fn resolve_all(paths: impl Iterator<Item = PathBuf>) -> Vec<Self> {
        let mut parents = BTreeMap::new();
        let mut resolved = Vec::new();
        for path in paths {
            let Some(parent) = path.parent() else { continue };
            let found = parents.entry(parent.to_owned()).or_insert_with(|| walk(parent, &mut |_, _| true));
            resolved.extend(Self::resolve_below(&path, found));
        }
        resolved
    }

    fn resolve_below(path: &Path, parent: &Walk) -> Vec<Self> {
        let Some(name) = path.file_name() else { return Vec::new() };
        let missing = |path: PathBuf| Self { path, kind: DeniedKind::Missing };
        let parent = match parent {
            Walk::Found(parent) => parent,
            Walk::Missing(parent) => return vec![missing(parent.join(name))],
            Walk::Refused => return vec![missing(path.to_owned())],
        };
        let place = parent.path().join(name);
        let Ok(stat) = rustix::fs::statat(parent.descriptor(), name, AtFlags::SYMLINK_NOFOLLOW) else {
            return vec![missing(place)];
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = Held::find(&place);
                let target =
                    target.map(|held| Self { path: held.path().to_owned(), kind: kind_of(held.kind()) });
                [missing(place)].into_iter().chain(target).collect()
            }
            kind => vec![Self { path: place, kind: kind_of(kind) }],
        }
    }
}

fn kind_of(kind: FileType) -> DeniedKind {
    if kind.is_dir() { DeniedKind::Directory } else { DeniedKind::File }
}

/// The default deny list, for a home directory and a user.
pub fn sensitive_paths(home: Option<&Path>, is_root: bool) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        home.into_iter().flat_map(|home| SENSITIVE_IN_HOME.iter().map(move |name| home.join(name))).collect();
    if is_root {
        paths.extend(SENSITIVE_FOR_ROOT.iter().map(PathBuf::from));
        paths.extend(ssh_host_keys());
    }
    paths
}

fn ssh_host_keys() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc/ssh").into_iter().flatten().flatten();
    let is_key = |name: &str| name.starts_with("ssh_host_") && name.ends_with("_key");
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_key)).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    #[test]
    fn system_and_shared_directories_are_no_scopes() {
        for path in
            ["/", "/usr", "/usr/bin", "/etc", "/proc/self", "/dev", "/sys/kernel", "/tmp", "/home", "/var"]
        {
            assert!(
                matches!(
                    vet_scope(Path::new(path), None, None),
                    Err(ScopeError::System(_) | ScopeError::Shared(_))
                ),
                "{path}"
            );
        }
    }

    #[test]
    fn a_link_to_the_system_is_the_system() {
        let link = test_directory::directory("paths-link").join("to-root");
        std::os::unix::fs::symlink("/proc/self/root", &link).unwrap();
        assert_eq!(vet_scope(&link, None, None), Err(ScopeError::Shared("/".into())));
    }

    #[test]
    fn each_unusable_scope_has_its_reason() {
        let directory = test_directory::directory("paths-reasons");
        let file = directory.join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(vet_scope(&file, None, None), Err(ScopeError::NotADirectory(file.clone())));
        let missing = directory.join("missing");
        assert_eq!(vet_scope(&missing, None, None), Err(ScopeError::Missing(missing.clone())));
        assert!(matches!(vet_scope(&directory, Some(&directory), None), Err(ScopeError::Home(_))));
        let deep = directory.join("user");
        std::fs::create_dir_all(&deep).unwrap();
        assert!(matches!(vet_scope(&directory, Some(&deep), None), Err(ScopeError::Home(_))));
        assert!(vet_scope(&deep, Some(&directory), None).is_ok());
        assert!(matches!(vet_scope(&deep, None, Some(&directory)), Err(ScopeError::Ringfence(_))));
    }

    #[test]
    fn settings_of_users_are_told_apart_from_projects() {
        let home = Some(Path::new("/srv/people/u"));
        for path in [
            "/srv/people/u/.config",
            "/srv/people/u/.local/bin",
            "/srv/people/u/bin",
            "/home/v/.config/autostart",
            "/root/.ssh",
            "/Users/w/Library/LaunchAgents",
        ] {
            assert!(holds_settings_of_a_user(Path::new(path), home), "{path}");
        }
        for path in ["/srv/people/u/project", "/srv/people/u/project/.config", "/home/v/project", "/srv/.x"] {
            assert!(!holds_settings_of_a_user(Path::new(path), home), "{path}");
        }
    }

    #[test]
    fn a_denied_link_denies_its_target_too() {
        let directory = test_directory::directory("paths-denied");
        let (target, link) = (directory.join("target"), directory.join("link"));
        std::fs::create_dir_all(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let denied = DeniedPath::resolve(&link);
        assert_eq!(denied[0].path, link);
        assert_eq!(denied[1], DeniedPath { path: target, kind: DeniedKind::Directory });
        let missing = DeniedPath::resolve(&directory.join("no/such"));
        assert_eq!(missing[0], DeniedPath { path: directory.join("no/such"), kind: DeniedKind::Missing });
    }
}
