//! Three-way merges of text.

use std::cmp::Ordering;

use crate::changes::is_binary;

/// Longer files are not merged: the diff would take too long.
pub(crate) const MAX_MERGED_BYTES: u64 = 2 * 1024 * 1024;

/// What becomes of two changes of one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Only the copy changed it, or both in the same way.
    Theirs,
    /// Only the base changed it.
    Ours,
    Both(Vec<u8>),
    SameLines,
    /// One of the three is binary or too long.
    Impossible,
}

/// Merges what the base (`ours`) and the copy (`theirs`) made of the ancestor.
pub(crate) fn merge(ancestor: &[u8], ours: &[u8], theirs: &[u8]) -> Merge {
    if ours == theirs || ours == ancestor {
        return Merge::Theirs;
    }
    if theirs == ancestor {
        return Merge::Ours;
    }
    let all = [ancestor, ours, theirs];
    if all
        .iter()
        .any(|side| is_binary(side) || (side.len() as u64).cmp(&MAX_MERGED_BYTES) == Ordering::Greater)
    {
        return Merge::Impossible;
    }
    diffy::merge_bytes(ancestor, ours, theirs).map_or(Merge::SameLines, Merge::Both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn changes_of_other_lines_come_together() {
        let ancestor = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let ours = b"one\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let theirs = b"1\n2\n3\n4\n5\n6\n7\n8\nnine";
        assert_eq!(merge(ancestor, ours, theirs), Merge::Both(b"one\n2\n3\n4\n5\n6\n7\n8\nnine".to_vec()));
        assert_eq!(merge(ancestor, ours, b"uno\n2\n3\n4\n5\n6\n7\n8\n9\n"), Merge::SameLines);
        assert_eq!(merge(b"a\0", b"b\0", b"c\0"), Merge::Impossible);
        assert_eq!(merge(b"a", b"b", b"b"), Merge::Theirs);
        assert_eq!(merge(b"a", b"b", b"a"), Merge::Ours);
        assert_eq!(merge(b"a", b"a", b"b"), Merge::Theirs);
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec("[abc]{0,2}\n", 0..12).prop_map(|lines| lines.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// A merge has every line that only one side added, and none that one side alone deleted.
        #[test]
        fn what_one_side_alone_did_is_in_the_merge(
            middle in proptest::collection::vec("[a-z]{3,8}[0-9]{4}\n", 6..20),
            ours in "[A-Z]{3}\n", theirs in "[A-Z]{4}\n",
            first in 0_usize..2, second in 4_usize..6,
        ) {
            let with = |edits: &[(usize, &String)]| {
                let mut lines = middle.clone();
                for (place, line) in edits {
                    lines[*place].clone_from(line);
                }
                lines.concat().into_bytes()
            };
            let expected = with(&[(first, &ours), (second, &theirs)]);
            let merged = merge(&with(&[]), &with(&[(first, &ours)]), &with(&[(second, &theirs)]));
            prop_assert_eq!(merged, Merge::Both(expected));
        }

        /// Merging is symmetric, and whatever comes out is made of lines of the three.
        #[test]
        fn a_merge_makes_up_nothing(ancestor in text(), ours in text(), theirs in text()) {
            let one = merge(&ancestor, &ours, &theirs);
            let other = merge(&ancestor, &theirs, &ours);
            if let (Merge::Both(one), Merge::Both(other)) = (&one, &other) {
                prop_assert_eq!(one, other);
            }
            if let Merge::Both(merged) = one {
                let all = [ancestor, ours, theirs].concat();
                let known: Vec<&[u8]> = all.split(|byte| *byte == b'\n').collect();
                prop_assert!(merged.split(|byte| *byte == b'\n').all(|line| known.contains(&line)));
            }
        }
    }
}
