//! A model of how the kernel decides about files, for tests: literal, subpath, vnode type and their
//! combinations, and the last rule that matches wins.
//!
//! It is known that a denial of one exact operation outlives a later permission for its family, and not
//! known how far that goes. So each question is answered twice, once by order alone and once with exact
//! operations first, and an answer counts only where both agree.

use std::collections::BTreeMap;

use super::SeatbeltProfile;
use super::expression::{Expression, read_all};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    /// The two readings differ: a profile must not depend on which one is right.
    Disputed,
}

/// What is asked: an exact operation on a path, which may be a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'a> {
    pub(super) operation: &'a str,
    pub(super) path: &'a str,
    pub(super) vnode_type: &'a str,
}

pub(super) struct Evaluator {
    rules: Vec<Vec<Expression>>,
    parameters: BTreeMap<String, String>,
}

impl Evaluator {
    pub(super) fn new(profile: &SeatbeltProfile) -> Self {
        let rules = read_all(&profile.text).unwrap().into_iter().map(|rule| items(&rule).to_vec()).collect();
        Self { rules, parameters: profile.parameters.iter().cloned().collect() }
    }

    pub(super) fn decide(&self, access: Access<'_>) -> Verdict {
        let is_any = |_: &str| true;
        let is_exact = |name: &str| name == access.operation;
        let is_family = |name: &str| name.ends_with('*');
        let by_order = self.last_match(access, &is_any);
        let by_exactness = self
            .last_match(access, &is_exact)
            .or_else(|| self.last_match(access, &is_family))
            .or_else(|| self.last_match(access, &is_any));
        match (by_order, by_exactness) {
            (Some(true), Some(true)) => Verdict::Allowed,
            (Some(false), Some(false)) => Verdict::Denied,
            _ => Verdict::Disputed,
        }
    }

    /// Whether the last rule that matches and names the operation in such a way allows it.
    fn last_match(&self, access: Access<'_>, counts: &dyn Fn(&str) -> bool) -> Option<bool> {
        let names_operation = |rule: &&Vec<Expression>| {
            operations(rule).any(|name| counts(name) && operation_matches(name, access.operation))
        };
        let mut candidates = self.rules.iter().rev().filter(names_operation);
        let rule = candidates.find(|rule| self.filters_match(rule, access))?;
        Some(symbol_name(&rule[0]) == "allow")
    }

    /// Several filters in a rule are alternatives.
    fn filters_match(&self, rule: &[Expression], access: Access<'_>) -> bool {
        let lists = rule.iter().filter(|item| matches!(item, Expression::List(_)));
        let filters: Vec<&Expression> = lists.filter(|item| symbol_name(&items(item)[0]) != "with").collect();
        filters.is_empty() || filters.iter().any(|filter| self.matches(filter, access))
    }

    fn matches(&self, filter: &Expression, access: Access<'_>) -> bool {
        let parts = items(filter);
        let arguments = &parts[1..];
        match symbol_name(&parts[0]) {
            "literal" => self.content(&arguments[0]) == access.path,
            "subpath" => subpath_matches(&self.content(&arguments[0]), access),
            "vnode-type" => symbol_name(&arguments[0]) == access.vnode_type,
            "require-any" => arguments.iter().any(|inner| self.matches(inner, access)),
            "require-all" => arguments.iter().all(|inner| self.matches(inner, access)),
            "require-not" => !self.matches(&arguments[0], access),
            // Terminals are not among the questions.
            "regex" | "extension" => false,
            other => panic!("not a filter for files: {other}"),
        }
    }

    fn content(&self, expression: &Expression) -> String {
        match expression {
            Expression::Text(content) => content.clone(),
            Expression::List(parts) if parts[0] == Expression::Symbol("param".to_owned()) => {
                self.parameters[&self.content(&parts[1])].clone()
            }
            other => panic!("neither a string nor a parameter: {other:?}"),
        }
    }
}

/// The model's reason for literal filters: a subpath does not see its own directory come into being.
fn subpath_matches(directory: &str, access: Access<'_>) -> bool {
    if access.path == directory {
        return access.operation != "file-write-create";
    }
    directory == "/" || access.path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn operation_matches(name: &str, operation: &str) -> bool {
    match name.strip_suffix('*') {
        Some(family) => operation.starts_with(family),
        None => name == operation || name == "default",
    }
}

/// The operations of a rule; none for `(version 1)`.
pub(super) fn operations(rule: &[Expression]) -> impl Iterator<Item = &str> {
    let is_rule = matches!(symbol_name(&rule[0]), "allow" | "deny");
    let names = rule[1..].iter().map_while(|item| match item {
        Expression::Symbol(name) => Some(name.as_str()),
        _ => None,
    });
    names.filter(move |_| is_rule)
}

pub(super) fn items(expression: &Expression) -> &[Expression] {
    match expression {
        Expression::List(items) => items,
        other => panic!("not a list: {other:?}"),
    }
}

pub(super) fn symbol_name(expression: &Expression) -> &str {
    match expression {
        Expression::Symbol(name) => name,
        other => panic!("not a symbol: {other:?}"),
    }
}
