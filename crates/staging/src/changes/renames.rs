//! Recognises files that were only moved: an added and a deleted file of equal content.

use std::collections::HashMap;
use std::path::Path;

use super::{Change, ChangeKind, EntryKind, Sides, digest_of};
use crate::held_tree::HeldTree;

/// So many bytes are read to find renames, and no more.
const MAX_HASHED_BYTES: u64 = 256 * 1024 * 1024;

/// Notes renames in both entries. An empty file is no rename of another.
pub(super) fn recognise(entries: &mut [Change], sides: &Sides) {
    let mut budget = MAX_HASHED_BYTES;
    let deleted = by_size(entries, ChangeKind::Deleted);
    let mut hashed: HashMap<([u8; 32], u64), Vec<usize>> = HashMap::new();
    let added = by_size(entries, ChangeKind::Added);
    for (bytes, places) in &deleted {
        if added.contains_key(bytes) {
            for place in places {
                if let Some(hash) = hash(&sides.base, &entries[*place].path, *bytes, &mut budget) {
                    hashed.entry((hash, *bytes)).or_default().push(*place);
                }
            }
        }
    }
    let mut candidates: Vec<(u64, usize)> =
        added.iter().flat_map(|(bytes, places)| places.iter().map(|place| (*bytes, *place))).collect();
    candidates.sort_unstable_by_key(|(_, place)| *place);
    for (bytes, place) in candidates.into_iter().filter(|(bytes, _)| deleted.contains_key(bytes)) {
        let Some(hash) = hash(&sides.copy, &entries[place].path, bytes, &mut budget) else { continue };
        let Some(from) = hashed.get_mut(&(hash, bytes)).and_then(|places| take_best(places, entries, place))
        else {
            continue;
        };
        // The diff does not show it again.
        if !entries[place].first_read.is(hash) {
            continue;
        }
        entries[place].renamed_from = Some(entries[from].path.clone());
        entries[from].renamed_to = Some(entries[place].path.clone());
    }
}

fn by_size(entries: &[Change], kind: ChangeKind) -> HashMap<u64, Vec<usize>> {
    let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, change) in entries.iter().enumerate() {
        let facts = change.after.as_ref().or(change.before.as_ref());
        if let Some(facts) = facts.filter(|facts| facts.kind == EntryKind::File && facts.bytes > 0)
            && change.kind == kind
        {
            places.entry(facts.bytes).or_default().push(place);
        }
    }
    places
}

/// Of several files with that content, one with the same name, else the first.
fn take_best(places: &mut Vec<usize>, entries: &[Change], to: usize) -> Option<usize> {
    let name = |place: usize| entries[place].path.file_name();
    let best = places.iter().position(|place| name(*place) == name(to)).unwrap_or(0);
    (!places.is_empty()).then(|| places.remove(best))
}

fn hash(tree: &HeldTree, path: &Path, bytes: u64, budget: &mut u64) -> Option<[u8; 32]> {
    *budget = budget.checked_sub(bytes)?;
    let (file, _) = tree.file(path).ok()?;
    digest_of(&file).ok()
}
