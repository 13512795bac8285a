//! Modules may use each other in pairs and triangles, but not in longer circles.

use std::collections::{BTreeMap, BTreeSet};

use super::module_edges::{ModuleGraph, ModulePath};
use crate::violation::Violation;
use crate::workspace::{Source, Workspace};

/// The most modules of a cycle.
const MAX_CYCLE: usize = 3;

/// Where a search gives up and reports the knot without an example.
const MOST_STEPS: usize = 2_000_000;

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut by_root: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in workspace.production() {
        if let Some(place) = &source.module {
            by_root.entry(&place.root).or_default().push(source);
        }
    }
    by_root.into_values().flat_map(|sources| check_target(&sources)).collect()
}

fn check_target(sources: &[&Source]) -> Vec<Violation> {
    let graph = ModuleGraph::of(sources);
    let modules: Vec<&ModulePath> = graph.edges.keys().collect();
    let index: BTreeMap<&ModulePath, usize> =
        modules.iter().enumerate().map(|(at, path)| (*path, at)).collect();
    let edges: Vec<Vec<usize>> = modules
        .iter()
        .map(|module| graph.edges[*module].keys().filter_map(|used| index.get(used).copied()).collect())
        .collect();
    let mut violations = Vec::new();
    for knot in knots(&edges).into_iter().filter(|knot| knot.len() > MAX_CYCLE) {
        let cycle = match long_cycle(&edges, &knot) {
            Search::Found(cycle) => cycle,
            Search::None => continue,
            Search::GaveUp => knot.iter().copied().collect(),
        };
        let file_of = |at: usize| {
            let is_it = |source: &&&Source| source.module.as_ref().is_some_and(|it| it.path == *modules[at]);
            sources.iter().find(is_it).map_or("?", |source| source.path.as_str())
        };
        let hop = |(place, &from): (usize, &usize)| {
            let to = cycle[(place + 1) % cycle.len()];
            let line = graph.edges[modules[from]].get(modules[to]).copied().unwrap_or(1);
            format!("{} → {} ({}:{line})", name(modules[from]), name(modules[to]), file_of(from))
        };
        let hops: Vec<String> = cycle.iter().enumerate().map(hop).collect();
        let next = modules[cycle[1 % cycle.len()]];
        violations.push(Violation {
            rule: "cycles",
            file: file_of(cycle[0]).to_owned(),
            line: graph.edges[modules[cycle[0]]].get(next).copied().unwrap_or(1),
            message: format!(
                "a cycle of {} modules, in a knot of {} of {}: {}",
                cycle.len(),
                knot.len(),
                modules.len(),
                hops.join(", ")
            ),
            hint: "let one side own the type that both use, or pass what is needed as an argument".to_owned(),
        });
    }
    violations
}

fn name(module: &ModulePath) -> String {
    if module.is_empty() { "crate".to_owned() } else { module.join("::") }
}

/// The strongly connected components with more than one module: those that reach each other.
fn knots(edges: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reachable(edges, from)).collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut found = Vec::new();
    for from in 0..edges.len() {
        if seen.contains(&from) || !reach[from].contains(&from) {
            continue;
        }
        let knot: BTreeSet<usize> =
            reach[from].iter().copied().filter(|other| reach[*other].contains(&from)).collect();
        seen.extend(&knot);
        if knot.len() > 1 {
            found.push(knot);
        }
    }
    found
}

fn reachable(edges: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        open.extend(edges[at].iter().copied().filter(|next| seen.insert(*next)));
    }
    seen
}

enum Search {
    Found(Vec<usize>),
    None,
    GaveUp,
}

/// A cycle that visits no module twice and has more than [`MAX_CYCLE`] of them. The shortest such lengths are
/// tried first, so that the example is easy to read.
fn long_cycle(edges: &[Vec<usize>], knot: &BTreeSet<usize>) -> Search {
    let mut steps = 0;
    for length in MAX_CYCLE + 1..=knot.len() {
        for &start in knot {
            let mut path = vec![start];
            if extend(edges, knot, &mut path, length, &mut steps) {
                return Search::Found(path);
            }
            if steps > MOST_STEPS {
                return Search::GaveUp;
            }
        }
    }
    Search::None
}

fn extend(
    edges: &[Vec<usize>],
    knot: &BTreeSet<usize>,
    path: &mut Vec<usize>,
    length: usize,
    steps: &mut usize,
) -> bool {
    *steps += 1;
    let (Some(&start), Some(&last)) = (path.first(), path.last()) else { return false };
    if path.len() == length {
        return edges[last].contains(&start);
    }
    for &next in &edges[last] {
        // Each cycle is found from its least module.
        if next <= start || !knot.contains(&next) || path.contains(&next) || *steps > MOST_STEPS {
            continue;
        }
        path.push(next);
        if extend(edges, knot, path, length, steps) {
            return true;
        }
        path.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    fn check_files(files: &[(&str, &str)]) -> Vec<String> {
        let named: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (format!("crates/a/src/{name}.rs"), *text)).collect();
        let borrowed: Vec<(&str, &str)> = named.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        lines(&check(&workspace(&borrowed)))
    }

    #[test]
    fn a_circle_of_four_is_reported_with_every_step() {
        let found = check_files(&[
            ("lib", "mod a; mod b; mod c; mod d;\npub use d::D;"),
            ("a", "use crate::b::B;"),
            ("b", "fn f() {\n  crate::c::g();\n}"),
            ("c", "fn f() {\n  say!(\"x\", crate::D::new());\n}"),
            ("d", "use super::a::{self, A};"),
        ]);
        assert_eq!(
            found,
            ["crates/a/src/a.rs:1 a cycle of 4 modules, in a knot of 4 of 5: a → b (crates/a/src/a.rs:1), \
              b → c (crates/a/src/b.rs:2), c → d (crates/a/src/c.rs:2), d → a (crates/a/src/d.rs:1)"]
        );
    }

    #[test]
    fn triangles_and_stars_are_fine() {
        let star = check_files(&[
            ("lib", "mod hub;"),
            ("hub", "mod a; mod b; mod c; mod d; fn f() { a::x(); b::x(); c::x(); d::x(); }"),
            ("hub/a", "use super::Hub;"),
            ("hub/b", "use super::Hub;"),
            ("hub/c", "use super::Hub; use super::d::X;"),
            ("hub/d", "use super::Hub;"),
        ]);
        assert_eq!(star, Vec::<String>::new());
        let triangle = check_files(&[
            ("lib", "mod a; mod b; mod c;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::A;"),
        ]);
        assert_eq!(triangle, Vec::<String>::new());
    }

    #[test]
    fn children_and_tests_are_no_uses() {
        let files = |first: &'static str, last: &'static str| {
            check_files(&[("lib", first), ("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", last)])
        };
        let parent = "mod a; mod b; mod c;\npub use a::A; use b::B; fn start() { a::run(); }";
        assert_eq!(files(parent, "use crate::start;"), Vec::<String>::new());
        let test = "#[cfg(test)] mod tests { use crate::start; }";
        let by_name = "mod a; mod b; mod c;\nuse crate::a::run;";
        assert_eq!(files(by_name, test), Vec::<String>::new());
        assert_eq!(files(by_name, "use super::start;").len(), 1);
    }
}
