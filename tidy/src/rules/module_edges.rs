//! Which module of a crate uses which: the graph of `crate::` and `super::` paths.
//!
//! What a parent does with its children, by paths that begin with their names, is not in it: a parent is made of
//! its children. A name is followed through `use` lines to the module that defines it, so `crate::Thing` is a
//! use of the module behind `pub use thing::Thing`.

use std::collections::BTreeMap;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree, Visibility};

use crate::workspace::Source;

/// How often a name is followed from one `use` to the next.
const MOST_HOPS: usize = 8;

/// The names from the root of a crate to a module.
pub(super) type ModulePath = Vec<String>;

/// The modules of one library or binary, and their uses of each other.
#[derive(Debug, Default)]
pub(super) struct ModuleGraph {
    modules: BTreeMap<ModulePath, Module>,
    pub(super) edges: BTreeMap<ModulePath, BTreeMap<ModulePath, usize>>,
}

#[derive(Debug, Default)]
struct Module {
    /// What its `use` lines bring into it.
    imports: BTreeMap<String, ModulePath>,
}

impl ModuleGraph {
    /// The sources are those of one library or binary.
    pub(super) fn of(sources: &[&Source]) -> Self {
        let mut graph = Self::default();
        let placed = || sources.iter().filter_map(|source| Some((*source, source.module.as_ref()?)));
        for (_, place) in placed() {
            graph.modules.insert(place.path.clone(), Module::default());
        }
        for (source, place) in placed() {
            let mut imports = BTreeMap::new();
            for item in &source.production.items {
                if let Item::Use(item) = item {
                    for path in leaves(item) {
                        if let (Some(path), Some(name)) = (graph.absolute(&path.path, &place.path), path.name)
                        {
                            imports.insert(name, path);
                        }
                    }
                }
            }
            graph.modules.insert(place.path.clone(), Module { imports });
        }
        for (source, place) in placed() {
            let mut uses = Uses { graph: &graph, inside: place.path.clone(), found: BTreeMap::new() };
            uses.visit_file(&source.production);
            let mut found = uses.found;
            found.remove(&place.path);
            graph.edges.insert(place.path.clone(), found);
        }
        graph
    }

    /// The path from the root, if it begins in this crate.
    fn absolute(&self, path: &[String], inside: &[String]) -> Option<ModulePath> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (&[][..], &path[1..]),
            "super" => (&inside[..inside.len().checked_sub(supers)?], &path[supers..]),
            "self" => (inside, &path[1..]),
            child => {
                let module = [inside, &[child.to_owned()]].concat();
                if !self.modules.contains_key(&module) {
                    return None;
                }
                (inside, path)
            }
        };
        Some([base, rest].concat())
    }

    /// The module that a path leads to.
    fn module_of(&self, path: &[String]) -> ModulePath {
        let mut path = path.to_vec();
        for _ in 0..MOST_HOPS {
            let (module, rest) = self.split(&path);
            let import = rest.first().and_then(|name| self.modules.get(module)?.imports.get(name));
            match import {
                Some(import) if *import != path => path = [import, &rest[1..]].concat(),
                _ => return module.to_vec(),
            }
        }
        self.split(&path).0.to_vec()
    }

    /// The longest part of a path that is a module, and what remains.
    fn split<'p>(&self, path: &'p [String]) -> (&'p [String], &'p [String]) {
        let is_module = |length: &usize| self.modules.contains_key(&path[..*length]);
        path.split_at((0..=path.len()).rev().find(is_module).unwrap_or(0))
    }
}

/// One name of a `use` line. Globs have none.
struct Leaf {
    path: Vec<String>,
    name: Option<String>,
}

fn leaves(item: &ItemUse) -> Vec<Leaf> {
    let mut found = Vec::new();
    collect(&item.tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<Leaf>) {
    let mut add = |last: Option<String>, name: Option<String>| {
        let mut path = before.clone();
        path.extend(last.filter(|last| last != "self"));
        let name =
            name.map(|name| if name == "self" { before.last().cloned().unwrap_or(name) } else { name });
        found.push(Leaf { path, name });
    };
    match tree {
        UseTree::Name(it) => add(Some(it.ident.to_string()), Some(it.ident.to_string())),
        UseTree::Rename(it) => add(Some(it.ident.to_string()), Some(it.rename.to_string())),
        UseTree::Glob(_) => add(None, None),
        UseTree::Path(it) => {
            before.push(it.ident.to_string());
            collect(&it.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                collect(tree, before, found);
            }
        }
    }
}

/// The modules that one file uses, each with the first line that does.
struct Uses<'a> {
    graph: &'a ModuleGraph,
    inside: ModulePath,
    found: BTreeMap<ModulePath, usize>,
}

impl Uses<'_> {
    /// Adds a path that leaves the module.
    fn add(&mut self, path: &[String], line: usize) {
        if !matches!(path.first().map(String::as_str), Some("crate" | "super")) {
            return;
        }
        if let Some(absolute) = self.graph.absolute(path, &self.inside) {
            self.found.entry(self.graph.module_of(&absolute)).or_insert(line);
        }
    }

    /// Arguments of macros are not parsed: looks for paths in their tokens.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut line) = (Vec::new(), 0);
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if path.is_empty() || colons == 2 => {
                    line = word.span().start().line;
                    path.push(word.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' && colons < 2 => {
                    colons += usize::from(colons == 1 || sign.spacing() == Spacing::Joint);
                    continue;
                }
                TokenTree::Ident(word) => {
                    self.add(&path, line);
                    path = vec![word.to_string()];
                    line = word.span().start().line;
                }
                TokenTree::Group(group) => {
                    self.add(&path, line);
                    path.clear();
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.add(&path, line);
                    path.clear();
                }
            }
            colons = 0;
        }
        self.add(&path, line);
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let line = item.use_token.span.start().line;
        for leaf in leaves(item) {
            self.add(&leaf.path, line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.add(&words, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    /// `pub(in crate::part)` is a limit, not a use.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
    }
}
