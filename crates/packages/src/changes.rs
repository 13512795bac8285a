//! What a refresh changes: the difference between two locks.

use std::collections::{BTreeMap, BTreeSet};

use crate::pins::Pins;

/// The versions of one package that a lock contains, each with the hashes of its files.
type Versions<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The difference between what is installed and what the registry offers now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<VersionChange>,
    pub removed: Vec<VersionChange>,
    pub changed: Vec<VersionChange>,
    /// Packages that have install scripts now and had none before.
    pub new_install_scripts: Vec<String>,
    /// Packages whose files were replaced under the same version. That should never happen.
    pub altered: Vec<AlteredPackage>,
}

/// The versions of one package, before and after. A lock of npm may contain several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionChange {
    pub name: String,
    pub from: Vec<String>,
    pub to: Vec<String>,
}

/// A version with other files than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlteredPackage {
    pub name: String,
    pub version: String,
    pub from: Vec<String>,
    pub to: Vec<String>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn between(old: &Pins, new: &Pins) -> Self {
        let (before, after) = (versions(old), versions(new));
        let mut changes = Self::default();
        for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let (from, to) = (before.get(name), after.get(name));
            let list = match (from, to) {
                (None, _) => &mut changes.added,
                (_, None) => &mut changes.removed,
                (Some(from), Some(to)) => {
                    changes.altered.extend(altered(name, from, to));
                    if from.keys().eq(to.keys()) {
                        continue;
                    }
                    &mut changes.changed
                }
            };
            list.push(VersionChange { name: (*name).to_owned(), from: names(from), to: names(to) });
        }
        let (had, has) = (old.with_install_scripts(), new.with_install_scripts());
        changes.new_install_scripts = has.difference(&had).map(|name| (*name).to_owned()).collect();
        changes
    }
}

fn versions(pins: &Pins) -> BTreeMap<&str, Versions<'_>> {
    let mut found: BTreeMap<&str, Versions<'_>> = BTreeMap::new();
    for pin in pins.packages() {
        let hashes = found.entry(&pin.name).or_default().entry(&pin.version).or_default();
        hashes.extend(pin.hashes.iter().map(String::as_str));
    }
    found
}

/// The versions that are in both locks, and now have a file that they did not have. One file less is no danger, and a
/// package without hashes came in the archive of another one.
fn altered<'a>(
    name: &'a str,
    from: &'a Versions<'_>,
    to: &'a Versions<'_>,
) -> impl Iterator<Item = AlteredPackage> + 'a {
    let owned = |hashes: &BTreeSet<&str>| hashes.iter().map(|hash| (*hash).to_owned()).collect();
    from.iter().filter_map(move |(version, before)| {
        let now = to.get(version).filter(|now| !before.is_empty() && !now.is_subset(before))?;
        Some(AlteredPackage {
            name: name.to_owned(),
            version: (*version).to_owned(),
            from: owned(before),
            to: owned(now),
        })
    })
}

fn names(versions: Option<&Versions<'_>>) -> Vec<String> {
    versions.into_iter().flat_map(BTreeMap::keys).map(|version| (*version).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognition::Tool;

    /// Requirements for packages written as `name version letters`: a hash for each letter.
    fn pins(packages: &[(&str, &str, &str)]) -> Pins {
        let lines = packages.iter().map(|(name, version, letters)| {
            let hashes =
                letters.chars().map(|letter| format!(" --hash=sha256:{}", letter.to_string().repeat(64)));
            format!("{name}=={version}{}\n", hashes.collect::<String>())
        });
        Pins::parse(Tool::Uvx, lines.collect()).unwrap()
    }

    fn change(name: &str, from: &[&str], to: &[&str]) -> VersionChange {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        VersionChange { name: name.to_owned(), from: owned(from), to: owned(to) }
    }

    #[test]
    fn what_came_went_and_changed_is_told_apart() {
        let old = pins(&[("a", "1", "a"), ("b", "1", "b"), ("c", "1", "c")]);
        let new = pins(&[("a", "1", "a"), ("b", "2", "d"), ("d", "1", "e")]);
        let changes = Changes::between(&old, &new);
        assert_eq!(changes.added, [change("d", &[], &["1"])]);
        assert_eq!(changes.removed, [change("c", &["1"], &[])]);
        assert_eq!(changes.changed, [change("b", &["1"], &["2"])]);
        assert!(changes.altered.is_empty() && !changes.is_empty());
        assert!(Changes::between(&old, &old).is_empty());
    }

    #[test]
    fn a_new_file_under_the_same_version_is_an_alteration_and_one_less_is_none() {
        let old = pins(&[("a", "1", "ab")]);
        assert!(Changes::between(&old, &pins(&[("a", "1", "a")])).is_empty());
        for letters in ["c", "abc"] {
            let changes = Changes::between(&old, &pins(&[("a", "1", letters)]));
            assert_eq!((&*changes.altered[0].name, &*changes.altered[0].version), ("a", "1"), "{letters}");
        }
        let changes = Changes::between(&old, &pins(&[("a", "2", "c")]));
        assert!(changes.altered.is_empty(), "another version has other files");
    }
}
