//! Which versions of tools the user chose for all projects. Version managers read that from the home directory, which is
//! a different one inside the fence.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The choices and settings of asdf, which hold nothing else.
const ASDF: [&str; 2] = [".tool-versions", ".asdfrc"];
/// The settings of mise.
const MISE: &str = ".config/mise/config.toml";
/// The table of them that is copied. Variables and hooks are not, which can hold keys.
const MISE_TABLE: &str = "tools";
/// Longer settings are not read.
const MAX_BYTES: u64 = 64 * 1024;

/// The files for a fenced home, with their places in it.
pub(crate) fn for_home(of_user: &Path) -> Vec<(&'static str, String)> {
    let read = |place: &'static str| Some((place, read_text(&of_user.join(place))?));
    let mise = read(MISE).map(|(place, text)| (place, tools_of(&text)));
    ASDF.into_iter().filter_map(read).chain(mise).filter(|(_, text)| !text.is_empty()).collect()
}

/// Has mise use the settings of a workspace. It asks its user before that, because they can run programs; inside a fence
/// they may.
pub(crate) fn trust(
    environment: &BTreeMap<OsString, OsString>,
    scope: &[PathBuf],
) -> Option<(OsString, OsString)> {
    environment.get(OsStr::new("MISE_DATA_DIR"))?;
    Some(("MISE_TRUSTED_CONFIG_PATHS".into(), std::env::join_paths(scope).ok()?))
}

fn tools_of(settings: &str) -> String {
    let Ok(mut settings) = settings.parse::<toml_edit::DocumentMut>() else { return String::new() };
    settings.retain(|table, _| table == MISE_TABLE);
    settings.to_string()
}

fn read_text(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_along_and_variables_do_not() {
        let user = crate::test_directory::directory("tool-versions");
        std::fs::create_dir_all(user.join(".config/mise")).unwrap();
        std::fs::write(user.join(".tool-versions"), "nodejs 24.9.0\n").unwrap();
        let settings = "[env]\nTOKEN = \"secret\"\n[tools]\nnode = \"24\"\npython = [\n  \"3.12\",\n]\n\
                        [tools.go]\nversion = \"1\"\n[toolset]\nx = 1\n[hooks]\nenter = \"evil\"\n";
        std::fs::write(user.join(MISE), settings).unwrap();
        let expected = "[tools]\nnode = \"24\"\npython = [\n  \"3.12\",\n]\n[tools.go]\nversion = \"1\"\n";
        let files = [(".tool-versions", "nodejs 24.9.0\n".to_owned()), (MISE, expected.to_owned())];
        assert_eq!(for_home(&user), files);
        assert_eq!(for_home(&user.join("empty")), []);
    }

    #[test]
    fn mise_trusts_a_workspace_where_it_is_installed() {
        let scope = [PathBuf::from("/work/a"), PathBuf::from("/work/b")];
        assert_eq!(trust(&BTreeMap::new(), &scope), None);
        let environment = BTreeMap::from([("MISE_DATA_DIR".into(), "/home/u/mise".into())]);
        let (_, paths) = trust(&environment, &scope).unwrap();
        assert_eq!(paths, "/work/a:/work/b");
    }
}
