//! The crates of the workspace and their parsed sources.

use std::collections::BTreeSet;

use syn::{Attribute, ImplItem, Item, Meta};
use toml_edit::DocumentMut;

use crate::files::Files;
use crate::violation::Violation;

/// Everything that the rules look at.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) files: Files,
    pub(crate) members: Vec<Member>,
    pub(crate) sources: Vec<Source>,
    /// Files that could not be parsed.
    pub(crate) unreadable: Vec<Violation>,
}

/// A crate. Its name is that of its directory, which is how other crates and the docs call it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) directory: String,
    pub(crate) manifest: DocumentMut,
}

impl Member {
    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }
}

/// One file of Rust.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    /// The name of its crate.
    pub(crate) member: String,
    pub(crate) text: String,
    /// All of it.
    pub(crate) whole: syn::File,
    /// Without the tests in it.
    pub(crate) production: syn::File,
    /// Where it is in its library or binary. `None` for files of tests and for those that no `mod` names.
    pub(crate) module: Option<ModulePlace>,
    pub(crate) is_test: bool,
}

/// A module of a library or binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModulePlace {
    /// The file that the library or binary begins with.
    pub(crate) root: String,
    /// The names from the root to the module; none for the root itself.
    pub(crate) path: Vec<String>,
}

impl Workspace {
    pub(crate) fn parse(files: Files) -> Self {
        let mut workspace = Self { files, members: Vec::new(), sources: Vec::new(), unreadable: Vec::new() };
        workspace.find_members();
        workspace.parse_sources();
        workspace.place_modules();
        workspace
    }

    pub(crate) fn root_manifest(&self) -> DocumentMut {
        self.files.text("Cargo.toml").and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Sources that are part of the product, with their tests removed.
    pub(crate) fn production(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.is_test)
    }

    fn find_members(&mut self) {
        let root = self.root_manifest();
        let listed =
            root.get("workspace").and_then(|table| table.get("members")).and_then(|it| it.as_array());
        let patterns: Vec<&str> = listed.into_iter().flatten().filter_map(|member| member.as_str()).collect();
        let mut directories = BTreeSet::new();
        for name in self.files.names() {
            let Some(directory) = name.strip_suffix("/Cargo.toml") else { continue };
            let is_member = patterns.iter().any(|pattern| match pattern.strip_suffix("/*") {
                Some(parent) => directory.rsplit_once('/').is_some_and(|(above, _)| above == parent),
                None => *pattern == directory,
            });
            if is_member {
                directories.insert(directory.to_owned());
            }
        }
        for directory in directories {
            let name = directory.rsplit('/').next().unwrap_or(&directory).to_owned();
            let text = self.files.text(&format!("{directory}/Cargo.toml")).unwrap_or_default();
            let manifest = text.parse().unwrap_or_default();
            self.members.push(Member { name, directory, manifest });
        }
    }

    fn parse_sources(&mut self) {
        for path in self.files.names() {
            let of = |member: &&Member| path.starts_with(&format!("{}/", member.directory));
            let (Some(member), Some(text)) = (self.members.iter().find(of), self.files.text(path)) else {
                continue;
            };
            if path.strip_suffix(".rs").is_none() {
                continue;
            }
            match syn::parse_file(text) {
                Ok(whole) => self.sources.push(Source {
                    path: path.to_owned(),
                    member: member.name.clone(),
                    text: text.to_owned(),
                    production: without_tests(&whole),
                    whole,
                    module: None,
                    is_test: is_in_test_directory(path, &member.directory),
                }),
                Err(error) => self.unreadable.push(Violation {
                    rule: "syntax",
                    file: path.to_owned(),
                    line: error.span().start().line,
                    message: format!("cannot be parsed: {error}"),
                    hint: "let it compile first".to_owned(),
                }),
            }
        }
    }

    /// Follows `mod` declarations from every library and binary.
    fn place_modules(&mut self) {
        let roots: Vec<String> =
            self.sources.iter().map(|source| source.path.clone()).filter(|path| is_root(path)).collect();
        for root in roots {
            self.place(&root.clone(), &ModulePlace { root, path: Vec::new() }, false);
        }
    }

    fn place(&mut self, path: &str, place: &ModulePlace, is_test: bool) {
        let Some(source) = self.sources.iter_mut().find(|source| source.path == path) else { return };
        if is_test {
            source.is_test = true;
        } else {
            source.module = Some(place.clone());
        }
        let mut declared = Vec::new();
        declarations(&source.whole.items, &mut Vec::new(), is_test, &mut declared);
        for module in declared {
            let below = format!("{}{}", directory_of_children(path, is_root(path)), module.path.join("/"));
            let file = [format!("{below}.rs"), format!("{below}/mod.rs")];
            let Some(file) = file.into_iter().find(|file| self.files.exists(file)) else { continue };
            let path = [place.path.clone(), module.path].concat();
            self.place(&file, &ModulePlace { root: place.root.clone(), path }, module.is_test);
        }
    }
}

/// A `mod name;`, with the inline modules around it.
struct Declaration {
    path: Vec<String>,
    is_test: bool,
}

fn declarations(items: &[Item], inside: &mut Vec<String>, is_test: bool, found: &mut Vec<Declaration>) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let is_test = is_test || is_for_tests(&module.attrs);
        inside.push(module.ident.to_string());
        match &module.content {
            Some((_, items)) => declarations(items, inside, is_test, found),
            None => found.push(Declaration { path: inside.clone(), is_test }),
        }
        inside.pop();
    }
}

fn is_root(path: &str) -> bool {
    let Some((_, below)) = path.split_once("/src/") else { return false };
    let is_binary = below.strip_prefix("bin/").is_some_and(|name| match name.split_once('/') {
        Some((_, file)) => file == "main.rs",
        None => true,
    });
    below == "lib.rs" || below == "main.rs" || is_binary
}

/// Where the files of a module's children are, with a `/` at the end.
fn directory_of_children(path: &str, is_root: bool) -> String {
    let is_like_root = is_root || path.ends_with("/mod.rs");
    let directory = match path.rsplit_once('/') {
        Some((directory, _)) if is_like_root => directory,
        _ => path.trim_end_matches(".rs"),
    };
    format!("{directory}/")
}

fn is_in_test_directory(path: &str, member: &str) -> bool {
    path.strip_prefix(member).is_some_and(|below| below.starts_with("/tests/"))
}

fn without_tests(file: &syn::File) -> syn::File {
    let mut file = file.clone();
    remove_tests(&mut file.items);
    file
}

fn remove_tests(items: &mut Vec<Item>) {
    items.retain(|item| !is_for_tests(attributes(item)));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    remove_tests(items);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(function) => !is_for_tests(&function.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]` and `#[cfg(all(test, …))]`.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute.path().segments.last().is_some_and(|last| last.ident == "test");
        let Meta::List(list) = &attribute.meta else { return is_test };
        let condition = list.tokens.to_string();
        let names_test =
            condition.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "test");
        is_test || (attribute.path().is_ident("cfg") && names_test && !condition.contains("not"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(files: &[(&str, &str)]) -> Workspace {
        Workspace::parse(Files::of(&crate::rules::trees::with_manifests(files)))
    }

    #[test]
    fn modules_are_found_where_rust_looks_for_them() {
        let workspace = workspace(&[
            ("crates/a/src/lib.rs", "mod one; mod inline { mod two; } #[cfg(test)] mod checks;"),
            ("crates/a/src/one.rs", "mod deep;"),
            ("crates/a/src/one/deep.rs", ""),
            ("crates/a/src/inline/two.rs", ""),
            ("crates/a/src/checks.rs", "fn helper() {}"),
            ("crates/a/src/bin/tool/main.rs", "mod part;"),
            ("crates/a/src/bin/tool/part.rs", ""),
            ("crates/a/tests/it/main.rs", "fn helper() {}"),
        ]);
        let place = |path: &str| {
            let source = workspace.sources.iter().find(|source| source.path.ends_with(path)).unwrap();
            source.module.as_ref().map(|module| module.path.join("::"))
        };
        assert_eq!(place("src/one/deep.rs").as_deref(), Some("one::deep"));
        assert_eq!(place("inline/two.rs").as_deref(), Some("inline::two"));
        assert_eq!(place("tool/part.rs").as_deref(), Some("part"));
        assert_eq!(place("checks.rs"), None);
        let tests: Vec<&str> =
            workspace.sources.iter().filter(|source| source.is_test).map(|source| &*source.path).collect();
        assert_eq!(tests, ["crates/a/src/checks.rs", "crates/a/tests/it/main.rs"]);
    }

    #[test]
    fn tests_are_no_production_code() {
        let text = "fn kept() {} #[test] fn gone() {} #[cfg(test)] mod tests { fn gone() {} }\n\
                    #[cfg(not(test))] fn also_kept() {} struct S; impl S { #[cfg(test)] fn gone() {} }";
        let workspace = workspace(&[("crates/a/src/lib.rs", text)]);
        assert_eq!(workspace.sources[0].production.items.len(), 4);
    }
}
