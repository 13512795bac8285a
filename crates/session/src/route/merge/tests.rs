//! Tests of the merge of several servers.

use super::*;

#[test]
fn a_member_is_looked_at_once_at_a_time() {
    let now = Instant::now();
    let mut merge = Merge::new([None, None]);
    assert_eq!(merge.consider(0, Duration::ZERO, now), Some(MergeAction::Look(0)));
    assert_eq!(merge.consider(0, Duration::ZERO, now), None);
    assert_eq!(merge.looks(), 1);
    merge.looked(0, Ok(Arc::default()), now);
    assert_eq!(merge.looks(), 0);
    assert_eq!(merge.consider(0, Duration::ZERO, now), None, "it is known");
}
