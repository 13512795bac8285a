//! How large a type and a function may become.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItem, ItemImpl, Signature, Type};

use crate::violation::Violation;
use crate::workspace::Workspace;

/// The most methods of a type, over all its inherent impls.
const MAX_METHODS: usize = 40;

/// The most lines of a function, from `fn` to its closing brace.
pub(super) const MAX_LINES: usize = 60;

/// The most functions of the tree that may be longer than that.
pub(super) const MAX_LONG_FUNCTIONS: usize = 5;

pub(super) fn check_methods(workspace: &Workspace) -> Vec<Violation> {
    /// The first place of an impl, and the methods of all.
    struct Methods {
        file: String,
        line: usize,
        count: usize,
    }
    let mut by_type: BTreeMap<(String, String), Methods> = BTreeMap::new();
    for source in workspace.production() {
        let mut impls = Impls::default();
        impls.visit_file(&source.production);
        for (name, line, count) in impls.found {
            let first = || Methods { file: source.path.clone(), line, count: 0 };
            by_type.entry((source.member.clone(), name)).or_insert_with(first).count += count;
        }
    }
    let large = by_type.into_iter().filter(|(_, methods)| methods.count > MAX_METHODS);
    large
        .map(|((_, name), Methods { file, line, count })| Violation {
            rule: "methods",
            file,
            line,
            message: format!("`{name}` has {count} methods, more than {MAX_METHODS}"),
            hint: "give a part of its state, with the methods for it, a type of its own".to_owned(),
        })
        .collect()
}

/// Inherent impls: the type, the line, the number of functions.
#[derive(Default)]
struct Impls {
    found: Vec<(String, usize, usize)>,
}

impl<'ast> Visit<'ast> for Impls {
    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let Type::Path(of) = &*block.self_ty else { return };
        if let (None, Some(name)) = (&block.trait_, of.path.segments.last()) {
            let count = block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
            self.found.push((name.ident.to_string(), block.impl_token.span().start().line, count));
        }
    }
}

/// A function with more than [`MAX_LINES`].
#[derive(Debug)]
pub(super) struct LongFunction {
    file: String,
    line: usize,
    name: String,
    lines: usize,
}

pub(super) fn long_functions(workspace: &Workspace) -> Vec<LongFunction> {
    let mut long = Vec::new();
    for source in workspace.production() {
        let mut functions = Functions::default();
        functions.visit_file(&source.production);
        let too_long = functions.found.into_iter().filter(|(_, _, lines)| *lines > MAX_LINES);
        let at = |(name, line, lines)| LongFunction { file: source.path.clone(), line, name, lines };
        long.extend(too_long.map(at));
    }
    long
}

/// A few long functions are fine: some lists are long.
pub(super) fn check_functions(long: &[LongFunction]) -> Vec<Violation> {
    if long.len() <= MAX_LONG_FUNCTIONS {
        return Vec::new();
    }
    let violation = |LongFunction { file, line, name, lines }: &LongFunction| Violation {
        rule: "long",
        file: file.clone(),
        line: *line,
        message: format!("`{name}` has {lines} lines, more than {MAX_LINES}"),
        hint: format!("split it; the tree has {} such functions, {MAX_LONG_FUNCTIONS} may stay", long.len()),
    };
    long.iter().map(violation).collect()
}

/// Functions with bodies: the name, the line, the number of lines.
#[derive(Default)]
struct Functions {
    found: Vec<(String, usize, usize)>,
}

impl Functions {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let first = signature.span().start().line;
        let last = body.brace_token.span.close().end().line;
        self.found.push((signature.ident.to_string(), first, last - first + 1));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    fn methods(numbers: std::ops::Range<usize>) -> String {
        numbers.map(|number| format!("fn m{number}() {{}}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn methods_of_all_inherent_impls_count_together() {
        let first = format!(
            "//! A.\nmod more;\nimpl Big {{ {} }}\nimpl Fine {{ {} }}",
            methods(0..30),
            methods(0..40)
        );
        let second = format!(
            "//! B.\nimpl Big {{ {} }}\nimpl Clone for Fine {{ {} }}",
            methods(30..41),
            methods(0..1)
        );
        let workspace = workspace(&[("crates/a/src/lib.rs", &first), ("crates/a/src/more.rs", &second)]);
        assert_eq!(
            lines(&check_methods(&workspace)),
            ["crates/a/src/lib.rs:3 `Big` has 41 methods, more than 40"]
        );
    }

    #[test]
    fn five_long_functions_may_stay() {
        let function =
            |name: usize, lines: usize| format!("/// Doc.\nfn f{name}() {{{}}}\n", "\n".repeat(lines - 1));
        let tree = |count: usize| {
            let text = (0..count).map(|name| function(name, 61)).collect::<Vec<_>>().concat();
            workspace(&[("crates/a/src/lib.rs", &(text + &function(99, 60)))])
        };
        let five = long_functions(&tree(5));
        assert_eq!((five.len(), check_functions(&five).len()), (5, 0));
        let six = check_functions(&long_functions(&tree(6)));
        assert_eq!(six.len(), 6);
        assert_eq!(lines(&six)[1], "crates/a/src/lib.rs:64 `f1` has 61 lines, more than 60");
    }
}
