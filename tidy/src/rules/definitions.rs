//! What the tree defines, by name: functions, types, modules, and words of its protocols.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Ident, Type};

use crate::workspace::{Source, Workspace};

/// Names of the whole tree, tests included, because pages name tests too.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// Each name with what it may be reached through: types, modules, crates.
    owners: BTreeMap<String, BTreeSet<String>>,
    functions: BTreeSet<String>,
    /// Words in strings, and words that are only used, such as constants of other crates.
    words: BTreeSet<String>,
}

impl Definitions {
    pub(super) fn of(workspace: &Workspace) -> Self {
        let mut definitions = Self::default();
        for source in &workspace.sources {
            let modules = modules_of(source);
            for (index, module) in modules.iter().enumerate() {
                definitions.define(module, &modules[..index]);
            }
            let mut collector = Collector { definitions: &mut definitions, owners: modules };
            collector.visit_file(&source.whole);
        }
        definitions
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.owners.contains_key(name)
    }

    pub(super) fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    /// Whether `owner::name` exists.
    pub(super) fn has_in(&self, owner: &str, name: &str) -> bool {
        self.owners.get(name).is_some_and(|owners| owners.contains(owner))
    }

    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    fn define(&mut self, name: &str, owners: &[String]) {
        self.owners.entry(name.to_owned()).or_default().extend(owners.iter().cloned());
    }
}

/// The crate, then the directories and the file: what a reader takes for the path of its modules.
fn modules_of(source: &Source) -> Vec<String> {
    let parts = source.path.trim_end_matches(".rs").split('/');
    let structural = ["crates", "src", "tests", "it", "bin", "lib", "main", "mod"];
    parts.filter(|part| !structural.contains(part)).map(str::to_owned).collect()
}

struct Collector<'a> {
    definitions: &'a mut Definitions,
    owners: Vec<String>,
}

impl Collector<'_> {
    fn define(&mut self, name: &Ident) {
        self.definitions.define(&name.to_string(), &self.owners);
    }

    fn define_function(&mut self, name: &Ident) {
        self.define(name);
        self.definitions.functions.insert(name.to_string());
    }

    fn inside(&mut self, owner: String, visit: impl FnOnce(&mut Self)) {
        self.owners.push(owner);
        visit(self);
        self.owners.pop();
    }

    fn take_words(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        self.definitions.words.extend(words.filter(|word| word.contains('_')).map(str::to_owned));
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.define(&module.ident);
        self.inside(module.ident.to_string(), |this| visit::visit_item_mod(this, module));
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.define_function(&function.sig.ident);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.define_function(&function.sig.ident);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.define_function(&function.sig.ident);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident);
        self.inside(item.ident.to_string(), |this| visit::visit_item_struct(this, item));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define(&item.ident);
        self.inside(item.ident.to_string(), |this| visit::visit_item_enum(this, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define(&item.ident);
        self.inside(item.ident.to_string(), |this| visit::visit_item_trait(this, item));
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.define(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.define(&item.ident);
        visit::visit_impl_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.define(&item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Some(name) = &item.ident {
            self.define(name);
        }
        visit::visit_item_macro(self, item);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.define(&variant.ident);
        visit::visit_variant(self, variant);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.define(name);
        }
        visit::visit_field(self, field);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let name = match &*block.self_ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.inside(name.unwrap_or_default(), |this| visit::visit_item_impl(this, block));
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.take_words(&literal.value());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.take_words(&call.tokens.to_string());
    }

    /// Constants of other crates, such as `CLONE_PARENT`.
    fn visit_ident(&mut self, name: &'ast Ident) {
        let name = name.to_string();
        if name.contains('_')
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        {
            self.definitions.words.insert(name);
        }
    }
}
