//! Finds lines that match a regular expression, with ripgrep's own searcher: in linear time for any expression,
//! skipping binary files.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use rustix::fs::FileType;
use thiserror::Error;

use super::walk::{Finding, Walk, WalkOutcome};

/// Memory limit for a compiled pattern.
const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;
/// The search of a file stops at a longer line.
const MAX_LINE_IN_MEMORY: usize = 256 * 1024 * 1024;
/// Bytes of all shown lines together, at most.
const MAX_SHOWN_BYTES: usize = 1024 * 1024;
/// Longer lines are cut.
const MAX_LINE_BYTES: usize = 400;

/// What to search for.
#[derive(Clone, Debug)]
pub(crate) struct GrepQuery {
    pub(crate) pattern: String,
    pub(crate) case_sensitive: bool,
    /// The pattern is plain text, not an expression.
    pub(crate) is_literal: bool,
    /// Lines shown before and after each match.
    pub(crate) context: usize,
    /// Matching lines that are shown; all are counted.
    pub(crate) limit: usize,
    /// Report only which files match.
    pub(crate) files_only: bool,
}

#[derive(Debug, Error)]
pub(crate) enum GrepRequestError {
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Pattern { pattern: String, reason: String },
}

/// The matches of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrepHit {
    /// Below the root of the session.
    pub(crate) below: PathBuf,
    /// Matching lines and their context, in order.
    pub(crate) lines: Vec<HitLine>,
    /// All matching lines, shown or not.
    pub(crate) count: u64,
}

impl GrepHit {
    fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.text.len()).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HitLine {
    pub(crate) number: u64,
    pub(crate) text: String,
    pub(crate) is_match: bool,
}

#[derive(Debug, Default)]
pub(crate) struct GrepReport {
    /// Sorted by path.
    pub(crate) hits: Vec<GrepHit>,
    pub(crate) total_matches: u64,
    pub(crate) files_with_matches: u64,
    pub(crate) files_searched: u64,
    pub(crate) walk: WalkOutcome,
}

/// Collects the hits of all threads: the first files by path that fill the limit.
struct Gathered {
    limit: usize,
    /// Each hit with its share of the limit.
    hits: BTreeMap<PathBuf, (GrepHit, usize)>,
    taken: usize,
    /// Bytes of all kept lines.
    bytes: usize,
}

impl Gathered {
    fn add(&mut self, hit: GrepHit) {
        let weight = hit.lines.iter().filter(|line| line.is_match).count().max(1);
        self.taken += weight;
        self.bytes += hit.bytes();
        self.hits.insert(hit.below.clone(), (hit, weight));
        // Drops the last files as long as the others fill the limit.
        while let Some(last) = self.hits.last_entry()
            && (self.taken - last.get().1 >= self.limit
                || self.bytes - last.get().0.bytes() >= MAX_SHOWN_BYTES)
        {
            let (hit, weight) = last.remove();
            self.taken -= weight;
            self.bytes -= hit.bytes();
        }
    }
}

pub(crate) fn grep(walk: Walk<'_>, query: &GrepQuery) -> Result<GrepReport, GrepRequestError> {
    let matcher = matcher(query)?;
    let patience = walk.patience();
    let gathered = Mutex::new(Gathered { limit: query.limit, hits: BTreeMap::new(), taken: 0, bytes: 0 });
    let (searched, with_matches, total) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let outcome = walk.run(|| {
        let mut each = searcher(query);
        let (gathered, matcher) = (&gathered, &matcher);
        let (searched, with_matches, total) = (&searched, &with_matches, &total);
        move |finding: &Finding<'_>| {
            if finding.kind != FileType::RegularFile {
                return true;
            }
            searched.fetch_add(1, Ordering::Relaxed);
            let is_over = || patience.is_over();
            if let Some(hit) = search_file(&mut each, matcher, finding, query, &is_over) {
                with_matches.fetch_add(1, Ordering::Relaxed);
                total.fetch_add(hit.count, Ordering::Relaxed);
                gathered.lock().add(hit);
            }
            !patience.is_over()
        }
    });
    let hits = std::mem::take(&mut gathered.lock().hits);
    Ok(GrepReport {
        hits: hits.into_values().map(|(hit, _)| hit).collect(),
        total_matches: total.load(Ordering::Relaxed),
        files_with_matches: with_matches.load(Ordering::Relaxed),
        files_searched: searched.load(Ordering::Relaxed),
        walk: outcome,
    })
}

fn matcher(query: &GrepQuery) -> Result<RegexMatcher, GrepRequestError> {
    RegexMatcherBuilder::new()
        .case_insensitive(!query.case_sensitive)
        .fixed_strings(query.is_literal)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .line_terminator(Some(b'\n'))
        .build(&query.pattern)
        .map_err(|error| GrepRequestError::Pattern {
            pattern: query.pattern.clone(),
            reason: error.to_string(),
        })
}

fn searcher(query: &GrepQuery) -> Searcher {
    let context = if query.files_only { 0 } else { query.context };
    SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_IN_MEMORY))
        .line_number(!query.files_only)
        .before_context(context)
        .after_context(context)
        .build()
}

fn search_file(
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    finding: &Finding<'_>,
    query: &GrepQuery,
    is_over: &dyn Fn() -> bool,
) -> Option<GrepHit> {
    let file = File::from(finding.open().ok()?);
    let mut sink = Lines::new(query, is_over);
    // After a read error, keeps the matches that were found.
    let _ = searcher.search_reader(matcher, Watched { file, is_over }, &mut sink);
    sink.into_hit(finding.below.to_owned())
}

/// A file whose reads fail once the search is over.
struct Watched<'a> {
    file: File,
    is_over: &'a dyn Fn() -> bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.is_over)() { Err(io::Error::other("the search is over")) } else { self.file.read(buffer) }
    }
}

/// Collects the lines of one file.
struct Lines<'a> {
    found: Vec<HitLine>,
    count: u64,
    limit: u64,
    files_only: bool,
    is_binary: bool,
    bytes: usize,
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Lines<'a> {
    fn new(query: &GrepQuery, is_over: &'a dyn Fn() -> bool) -> Self {
        let (limit, files_only) = (query.limit as u64, query.files_only);
        Self { found: Vec::new(), count: 0, limit, files_only, is_binary: false, bytes: 0, is_over }
    }

    fn into_hit(self, below: PathBuf) -> Option<GrepHit> {
        (self.count > 0 && !self.is_binary).then_some(GrepHit { below, lines: self.found, count: self.count })
    }

    fn is_full(&self) -> bool {
        self.count > self.limit || self.bytes > MAX_SHOWN_BYTES
    }

    fn add(&mut self, number: Option<u64>, line: &[u8], is_match: bool) {
        let text = shown(line);
        self.bytes += text.len();
        self.found.push(HitLine { number: number.unwrap_or(0), text, is_match });
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.count += 1;
        if self.files_only {
            return Ok(false);
        }
        if !self.is_full() {
            self.add(found.line_number(), found.bytes(), true);
        }
        // Checking the clock at every match would take longer than the search.
        Ok(!self.count.is_multiple_of(1024) || !(self.is_over)())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let comes_after_limit = self.count >= self.limit && *context.kind() == SinkContextKind::Before;
        if !self.is_full() && !comes_after_limit {
            self.add(context.line_number(), context.bytes(), false);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        Ok(false)
    }
}

/// A line without its ending, cut if it is too long.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= MAX_LINE_BYTES {
        return String::from_utf8_lossy(line).into_owned();
    }
    let text = String::from_utf8_lossy(&line[..MAX_LINE_BYTES]);
    // The cut may have split a character.
    format!("{}… ({} bytes)", text.trim_end_matches('\u{fffd}'), line.len())
}
