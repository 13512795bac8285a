//! Finds files by a fuzzy query on their path, best match first.

use parking_lot::Mutex;
use std::path::PathBuf;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use rustix::fs::FileType;

use super::walk::{Finding, Walk, WalkOutcome};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FuzzyHit {
    /// Below the root of the session.
    pub(crate) below: PathBuf,
    pub(crate) score: u32,
}

/// Returns the best `limit` files, and how many matched.
pub(crate) fn find_by_name(walk: Walk<'_>, query: &str, limit: usize) -> (Vec<FuzzyHit>, usize, WalkOutcome) {
    let pattern = Pattern::parse(query, CaseMatching::Smart, Normalization::Smart);
    let all = Mutex::new((Vec::new(), 0_usize));
    let outcome = walk.run(|| {
        let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
        let mut characters = Vec::new();
        let (all, pattern) = (&all, &pattern);
        move |finding: &Finding<'_>| {
            if finding.kind == FileType::Directory {
                return true;
            }
            let path = finding.below.to_string_lossy();
            let Some(score) = pattern.score(Utf32Str::new(&path, &mut characters), &mut matcher) else {
                return true;
            };
            let mut all = all.lock();
            all.1 += 1;
            all.0.push(FuzzyHit { below: finding.below.to_owned(), score });
            // Bounds the memory in large trees.
            if all.0.len() > limit.saturating_mul(4).max(1024) {
                keep_best(&mut all.0, limit);
            }
            true
        }
    });
    let (mut hits, count) = std::mem::take(&mut *all.lock());
    keep_best(&mut hits, limit);
    (hits, count, outcome)
}

/// Sorts by score, then length, then name, so that the order is always the same.
fn keep_best(hits: &mut Vec<FuzzyHit>, limit: usize) {
    hits.sort_by(|a, b| {
        let length = |hit: &FuzzyHit| hit.below.as_os_str().len();
        b.score.cmp(&a.score).then(length(a).cmp(&length(b))).then_with(|| a.below.cmp(&b.below))
    });
    hits.truncate(limit);
}
