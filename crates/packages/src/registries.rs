//! Passes the user's registry settings into the fence of an installation, but no credentials: install scripts run in
//! there, with network.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use fence::HostEnvironment;

/// Variables that decide where packages come from, and which versions.
const VARIABLES: &[&str] = &[
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_STRICT_SSL",
    "NPM_CONFIG_IGNORE_SCRIPTS",
    "NPM_CONFIG_BEFORE",
    "NPM_CONFIG_MIN_RELEASE_AGE",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX_STRATEGY",
    "UV_INSECURE_HOST",
    "UV_EXCLUDE_NEWER",
    "UV_PRERELEASE",
    "UV_RESOLUTION",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_HTTP_TIMEOUT",
    "UV_PYTHON",
    "UV_PYTHON_PREFERENCE",
    "UV_PYTHON_DOWNLOADS",
    "UV_PYTHON_INSTALL_MIRROR",
    "UV_PYPY_INSTALL_MIRROR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// The same for settings of `.npmrc`. Settings that end with `:registry` pass, too.
const NPM_SETTINGS: &[&str] = &[
    "registry",
    "cafile",
    "strict-ssl",
    "proxy",
    "https-proxy",
    "noproxy",
    "ignore-scripts",
    "before",
    "min-release-age",
    "nodedir",
];

/// Where the headers of Node are below what `nodedir` names.
const NODE_HEADERS: &str = "include/node/node.h";

/// Variables that name certificate files, which the fence must make readable.
const CERTIFICATES: &[&str] =
    &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE", "REQUESTS_CA_BUNDLE"];

/// Machine-wide settings outside the directories that strict reading allows.
const MACHINE_SETTINGS: &[&str] = &["/etc/uv", "/etc/xdg/uv"];

/// Whether a variable decides where packages come from, and so may be passed to an installation.
pub fn is_registry_variable(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| VARIABLES.contains(&name.to_ascii_uppercase().as_str()))
}

/// The user's variables for registries, without those that contain credentials.
pub(crate) fn variables(host_environment: &HostEnvironment) -> Vec<(OsString, OsString)> {
    let is_passed = |(name, value): &(&OsString, &OsString)| {
        is_registry_variable(name) && !has_credentials(&value.to_string_lossy())
    };
    let passed = host_environment.environment.iter().filter(is_passed);
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Copies the user's settings into the home of the installation, without the secrets in them.
pub(crate) fn furnish(home: &Path, host_environment: &HostEnvironment) -> std::io::Result<()> {
    let Some(of_user) = &host_environment.home else { return Ok(()) };
    if let Ok(text) = std::fs::read_to_string(of_user.join(".npmrc")) {
        std::fs::write(home.join(".npmrc"), public_npm_settings(&text))?;
    }
    let named = host_environment.environment.get(OsStr::new("XDG_CONFIG_HOME")).map(PathBuf::from);
    let settings = named.unwrap_or_else(|| of_user.join(".config")).join("uv/uv.toml");
    if let Ok(text) = std::fs::read_to_string(settings)
        && !has_credentials(&text)
    {
        let directory = home.join(".config/uv");
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("uv.toml"), text)?;
    }
    Ok(())
}

/// Paths that the installation reads beside the system and its tools.
pub(crate) fn readable(host_environment: &HostEnvironment) -> Vec<PathBuf> {
    let of_variables = host_environment
        .environment
        .iter()
        .filter(|(name, _)| {
            name.to_str().is_some_and(|name| CERTIFICATES.contains(&name.to_ascii_uppercase().as_str()))
        })
        .map(|(_, value)| PathBuf::from(value));
    let npm_settings = host_environment.home.iter().filter_map(|home| {
        let text = std::fs::read_to_string(home.join(".npmrc")).ok()?;
        let paths = npm_settings(&text).filter_map(|(name, value)| match name {
            "cafile" => Some(PathBuf::from(value)),
            // Native parts of packages are built against these headers.
            "nodedir" => Some(Path::new(value).join("include/node")).filter(|_| has_headers(value)),
            _ => None,
        });
        Some(paths.collect::<Vec<_>>())
    });
    let npm_settings = npm_settings.flatten();
    let machine = MACHINE_SETTINGS.iter().map(PathBuf::from);
    of_variables.chain(npm_settings).chain(machine).filter(|path| path.is_absolute()).collect()
}

fn has_headers(nodedir: &str) -> bool {
    Path::new(nodedir).join(NODE_HEADERS).is_file()
}

fn npm_settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim(), value.trim().trim_matches('"')))
    })
}

fn public_npm_settings(text: &str) -> String {
    let is_public =
        |name: &str| NPM_SETTINGS.contains(&name) || (name.starts_with('@') && name.ends_with(":registry"));
    npm_settings(text)
        .filter(|(name, value)| is_public(name) && !has_credentials(value) && !value.contains("${"))
        .flat_map(|(name, value)| [name, "=", value, "\n"])
        .collect()
}

/// Looks for `scheme://user:password@host` anywhere in a text.
fn has_credentials(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| "/?#\"' \t\n,".contains(c)).next().unwrap_or_default();
        authority.contains('@')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_of_npm_are_passed_on_and_tokens_are_not() {
        let text = "registry=https://mirror.example/npm/\n//mirror.example/npm/:_authToken=secret\n\
                    @team:registry = \"https://team.example/\"\n_auth=secret\nproxy=http://u:p@proxy.example\n\
                    noproxy=${HOSTS}\nignore-scripts=true\nnodedir=/usr\n; comment\nemail=a@b\n";
        let expected = "registry=https://mirror.example/npm/\n@team:registry=https://team.example/\nignore-scripts=true\nnodedir=/usr\n";
        assert_eq!(public_npm_settings(text), expected);
    }

    #[test]
    fn an_address_with_a_password_is_recognised() {
        for text in ["https://u:p@host/x", "one=https://host/ https://u@host", "url = \"http://t@h\""] {
            assert!(has_credentials(text), "{text}");
        }
        for text in ["https://host/@scope/x", "a@b", "", "https://host/x?y=a@b"] {
            assert!(!has_credentials(text), "{text}");
        }
    }

    #[test]
    fn only_variables_about_registries_pass() {
        assert!(is_registry_variable(OsStr::new("npm_config_registry")));
        assert!(is_registry_variable(OsStr::new("UV_DEFAULT_INDEX")));
        for name in ["NPM_TOKEN", "UV_PUBLISH_TOKEN", "UV_INDEX_PRIVATE_PASSWORD", "NODE_OPTIONS"] {
            assert!(!is_registry_variable(OsStr::new(name)), "{name}");
        }
    }
}
