//! The environment of a fenced command. Only listed variables are passed on, so that none that loads code or leads to the
//! user's agents is passed on by mistake.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::Tier;
use crate::private_tree::PrivateTree;
use crate::toolchain::is_executable;
use crate::{git_settings, tool_versions};

/// What programs need to find their files, their language and their terminal, and to trust the same
/// certificates as their user does.
const BASICS: &[&str] = &[
    "PATH",
    "LANG",
    "TERM",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
];
const BASICS_PREFIX: &str = "LC_";

/// Passed on to fenced commands only.
const ALSO_PASSED_ON: &[&str] = &["COLORTERM", "NO_COLOR", "USER", "LOGNAME", "JAVA_HOME", "GOROOT"];

/// Toolchains that are found through the home directory, which is a different one inside the fence.
const TOOLCHAINS: &[(&str, &str)] = &[
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    ("NVM_DIR", ".nvm"),
    ("VOLTA_HOME", ".volta"),
    ("RBENV_ROOT", ".rbenv"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("MISE_DATA_DIR", ".local/share/mise"),
    ("SDKMAN_DIR", ".sdkman"),
    ("FNM_DIR", ".local/share/fnm"),
    ("GOENV_ROOT", ".goenv"),
    ("NODENV_ROOT", ".nodenv"),
    ("JENV_ROOT", ".jenv"),
    ("BUN_INSTALL", ".bun"),
    ("DOTNET_ROOT", ".dotnet"),
];

/// Variables that are passed on and name one toolchain, with the program that has to lie in it.
const NAMED_TOOLCHAINS: &[(&str, &str)] = &[("JAVA_HOME", "bin/java"), ("GOROOT", "bin/go")];

/// Directories of a home with toolchains that are found by links and full paths: virtual environments lead to the
/// interpreters of uv.
const INTERPRETERS: &[&str] = &[".local/share/uv/python", ".juliaup", ".julia/juliaup", ".ghcup"];

/// Variables that make programs load code, or that lead to agents and displays of the user.
const STRIPPED: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "IFS",
    "CDPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "DOTNET_STARTUP_HOOKS",
    "GOFLAGS",
    "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DOCKER_HOST",
    "GIT_SSH_COMMAND",
];
const STRIPPED_PREFIXES: &[&str] = &["LD_", "DYLD_", "BASH_FUNC_", "GEM_", "GIT_CONFIG_"];

/// Whether a variable is left out even if the operator names it.
pub fn is_stripped(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    STRIPPED.contains(&name) || STRIPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether any program, fenced or not, gets this variable of its parent.
pub fn is_basic(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| BASICS.contains(&name) || name.starts_with(BASICS_PREFIX))
}

/// The variables of the parent that every fenced command gets.
pub fn passed_on(parent: impl IntoIterator<Item = (OsString, OsString)>) -> BTreeMap<OsString, OsString> {
    let is_passed =
        |name: &OsString| is_basic(name) || name.to_str().is_some_and(|name| ALSO_PASSED_ON.contains(&name));
    parent.into_iter().filter(|(name, _)| is_passed(name)).collect()
}

/// Where the user's toolchains are: as the parent says, or where they lie in the home directory.
pub fn toolchains(parent: &BTreeMap<OsString, OsString>, home: Option<&Path>) -> Vec<(OsString, OsString)> {
    TOOLCHAINS
        .iter()
        .filter_map(|(name, directory)| {
            let named = parent.get(OsStr::new(name)).cloned();
            let usual = || home.map(|home| home.join(directory)).filter(|path| path.is_dir()).map(Into::into);
            Some(((*name).into(), named.or_else(usual)?))
        })
        .collect()
}

/// The toolchains that variables of the parent name.
pub(crate) fn named_toolchains(parent: &BTreeMap<OsString, OsString>) -> impl Iterator<Item = PathBuf> {
    NAMED_TOOLCHAINS.iter().filter_map(|(name, program)| {
        let directory = parent.get(OsStr::new(name)).map(PathBuf::from)?;
        is_executable(&directory.join(program)).then_some(directory)
    })
}

/// More directories of a home that hold interpreters.
pub(crate) fn interpreters(home: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let home = home.map(Path::to_owned);
    INTERPRETERS
        .iter()
        .filter_map(move |directory| Some(home.as_ref()?.join(directory)))
        .filter(|path| path.is_dir())
}

/// The directories that belong to the command.
#[derive(Clone, Copy, Debug)]
pub struct OwnPlaces<'a> {
    pub home: &'a Path,
    pub caches: &'a Path,
    /// `None`: no temporary files.
    pub temp: Option<&'a Path>,
}

/// The variables that lead programs to their own directories, and uv away from links into caches.
pub fn own_places(places: OwnPlaces<'_>, tier: Tier) -> Vec<(OsString, OsString)> {
    let OwnPlaces { home, caches, temp } = places;
    let directories = [
        ("HOME", home.to_owned()),
        ("XDG_CONFIG_HOME", home.join(".config")),
        ("XDG_DATA_HOME", home.join(".local/share")),
        ("XDG_STATE_HOME", home.join(".local/state")),
        ("XDG_CACHE_HOME", caches.to_owned()),
        ("NPM_CONFIG_CACHE", caches.join("npm")),
        ("UV_CACHE_DIR", caches.join("uv")),
        ("UV_PYTHON_INSTALL_DIR", caches.join("uv-python")),
        ("PIP_CACHE_DIR", caches.join("pip")),
        ("CARGO_HOME", caches.join("cargo")),
        ("CARGO_INSTALL_ROOT", caches.join("cargo-installed")),
        ("GOPATH", caches.join("go")),
        ("YARN_CACHE_FOLDER", caches.join("yarn")),
        ("GRADLE_USER_HOME", caches.join("gradle")),
        ("NUGET_PACKAGES", caches.join("nuget")),
    ];
    // Java takes its user's home from the list of users, so Maven has to be told.
    let maven =
        format!("-Duser.home={} -Dmaven.repo.local={}", home.display(), caches.join("maven").display());
    let words = [("UV_LINK_MODE", uv_link_mode(tier)), ("MAVEN_OPTS", maven.as_str())];
    let temp =
        temp.into_iter().flat_map(|temp| ["TMPDIR", "TMP", "TEMP"].map(|name| (name, temp.to_owned())));
    directories
        .into_iter()
        .chain(temp)
        .map(|(name, path)| (name.into(), path.into()))
        .chain(words.into_iter().map(|(name, value)| (name.into(), value.into())))
        .collect()
}

/// How uv takes packages out of its cache. A clone shares blocks until either file is written, which costs little on
/// btrfs and XFS. Where none can be had, uv tries a hard link and then copies; a link would let a project change the
/// cache. In Tier B the kernel refuses links, because the cache and the project are different mounts.
fn uv_link_mode(tier: Tier) -> &'static str {
    match tier {
        Tier::A => "copy",
        Tier::B => "clone",
    }
}

/// Writes settings into a fresh home: those of the user's git that come along, which versions of tools the user chose,
/// where pnpm keeps its packages, and that it clones or copies them instead of linking them into projects. What an earlier command
/// of the session has put there stays.
pub(crate) fn furnish_home(
    home: &PrivateTree,
    places: OwnPlaces<'_>,
    of_user: Option<&Path>,
) -> io::Result<()> {
    home.add_file(Path::new(".gitconfig"), &git_settings::for_home(places.home, of_user))?;
    for (_, place, program) in git_settings::SIGNERS {
        home.add_program(Path::new(place), &git_settings::signer(program))?;
    }
    for (place, text) in of_user.map(tool_versions::for_home).into_iter().flatten() {
        home.add_file(Path::new(place), &text)?;
    }
    // The first file is for pnpm up to version 10, the second for later ones, which do not read the first.
    let store = places.caches.join("pnpm").display().to_string();
    let rc = format!("package-import-method=clone-or-copy\nstore-dir={store}\n");
    home.add_file(Path::new(".config/pnpm/rc"), &rc)?;
    let yaml = format!("packageImportMethod: clone-or-copy\nstoreDir: '{}'\n", store.replace('\'', "''"));
    home.add_file(Path::new(".config/pnpm/config.yaml"), &yaml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_parent_stay_with_it() {
        let parent = [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("PATHS", "y")];
        let passed = passed_on(parent.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(passed.keys().collect::<Vec<_>>(), ["LC_ALL", "PATH"]);
    }

    #[test]
    fn uv_makes_no_links_where_they_would_be_possible() {
        let home = Path::new("/home");
        let mode = |tier| {
            let places = own_places(OwnPlaces { home, caches: home, temp: None }, tier);
            places.into_iter().find(|(name, _)| name == "UV_LINK_MODE").unwrap().1
        };
        assert_eq!([mode(Tier::A), mode(Tier::B)], ["copy", "clone"]);
    }

    #[test]
    fn what_loads_code_is_known() {
        for name in
            ["LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "GIT_CONFIG_COUNT", "BASH_FUNC_x%%"]
        {
            assert!(is_stripped(OsStr::new(name)), "{name}");
        }
        assert!(!is_stripped(OsStr::new("API_KEY")) && !is_stripped(OsStr::new("LDAP")));
    }

    fn furnish(home: &Path, of_user: &Path) {
        let places = OwnPlaces { home, caches: home, temp: None };
        furnish_home(&PrivateTree::open(home, None).unwrap(), places, Some(of_user)).unwrap();
    }

    #[test]
    fn only_the_identity_of_the_git_settings_is_taken() {
        let home = crate::test_directory::directory("git-identity");
        let settings = "[core]\n\tsshCommand = evil\n[user]\n\tname = A B\n\temail = a@b\n\tsigningkey = k\n[alias]\nname = x\n";
        std::fs::write(home.join(".gitconfig"), settings).unwrap();
        let inside = home.join("inside");
        std::fs::create_dir_all(&inside).unwrap();
        furnish(&inside, &home);
        let identity = std::fs::read_to_string(inside.join(".gitconfig")).unwrap();
        assert!(identity.ends_with("[user]\n\tname = A B\n\temail = a@b\n\tsigningkey = k\n"), "{identity}");
        assert!(!identity.contains("evil"), "{identity}");
    }

    #[test]
    fn links_that_a_command_left_in_its_home_are_not_written_through() {
        use std::os::unix::fs::symlink;
        let base = crate::test_directory::directory("furnished-twice");
        std::fs::write(base.join(".gitconfig"), "[user]\n\tname = A\n").unwrap();
        for (link, target) in [
            (".gitconfig", "victim"),
            (".config", "victims"),
            (".config/pnpm", "victims"),
            (".config/pnpm/rc", "victim"),
            (".config/pnpm/config.yaml", "victim"),
        ] {
            for directory in ["home", "victims"] {
                let _ = std::fs::remove_dir_all(base.join(directory));
                std::fs::create_dir_all(base.join(directory)).unwrap();
            }
            std::fs::write(base.join("victim"), "as it was").unwrap();
            let link = base.join("home").join(link);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(base.join(target), &link).unwrap();
            furnish(&base.join("home"), &base);
            assert_eq!(std::fs::read_to_string(base.join("victim")).unwrap(), "as it was", "{link:?}");
            assert_eq!(std::fs::read_dir(base.join("victims")).unwrap().count(), 0, "{link:?}");
        }
        // The control: without a link both files are there, and a second time changes nothing.
        for _ in 0..2 {
            let home = base.join("home");
            let _ = std::fs::remove_file(home.join(".config/pnpm/rc"));
            furnish(&home, &base);
            assert!(home.join(".gitconfig").is_file() && home.join(".config/pnpm/rc").is_file());
        }
    }
}
