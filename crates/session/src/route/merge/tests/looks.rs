//! When servers are looked at and asked for their lists, and when the client is notified.

use super::*;

const PAUSE: Duration = Duration::from_secs(10);

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

#[test]
fn members_are_looked_at_at_the_same_time() {
    let now = Instant::now();
    let mut merge = Merge::new([None, None, Some(Arc::default())]);
    let looks: Vec<_> = (0..3).map(|place| merge.consider(place, PAUSE, now)).collect();
    assert_eq!(looks, [Some(MergeAction::Look(0)), Some(MergeAction::Look(1)), None]);
    assert_eq!(merge.looks(), 2);
    merge.looked(1, Ok(Arc::default()), now);
    assert_eq!(merge.looks(), 1);
    merge.looked(0, Err("broken".to_owned()), now);
    assert_eq!(merge.looks(), 0);
}

#[test]
fn trouble_is_left_alone_until_its_pause_is_over_or_it_is_forgiven() {
    let now = Instant::now();
    let mut merge = Merge::new([None]);
    merge.consider(0, PAUSE, now);
    merge.looked(0, Err("broken".to_owned()), now);
    assert_eq!(merge.knowledge(0).trouble(), Some("broken"));
    assert_eq!(merge.consider(0, PAUSE, now), None);
    assert_eq!(merge.consider(0, PAUSE, now + PAUSE), Some(MergeAction::Look(0)));
    merge.looked(0, Err("still broken".to_owned()), now + PAUSE);
    merge.forgive(0);
    assert_eq!(merge.consider(0, PAUSE, now + PAUSE), Some(MergeAction::Look(0)));
}

#[test]
fn what_a_look_found_is_shown_soon() {
    let now = Instant::now();
    for found in [Ok(tools(&["x"])), Err("broken".to_owned())] {
        let mut merge = shown(&[None]);
        assert!(!merge.is_stale());
        merge.consider(0, PAUSE, now);
        assert_eq!(merge.looked(0, found, now), [MergeAction::ShowSoon]);
        assert!(merge.is_stale());
    }
}

#[test]
fn changes_that_come_together_are_told_together() {
    let now = Instant::now();
    let mut merge = Merge::new([None, None, None]);
    for place in 0..3 {
        merge.consider(place, PAUSE, now);
    }
    assert_eq!(merge.looked(0, Ok(tools(&["x"])), now), [MergeAction::ShowSoon]);
    assert!(merge.looked(1, Ok(tools(&["y"])), now).is_empty());
    merge.telling();
    assert_eq!(merge.looked(2, Ok(tools(&["z"])), now), [MergeAction::ShowSoon]);
}

#[test]
fn a_new_view_tells_the_lists_that_look_different() {
    let mut merge = shown(&[Some(tools(&["x"]))]);
    assert!(merge.show(view(&[Some(tools(&["x"]))])).is_empty(), "the same");
    let with_more = tools(&["x", "y"]);
    assert_eq!(merge.show(view(&[Some(with_more)])), [MergeAction::Tell(List::Tools)]);
    assert!(!merge.is_stale());
    let other = resources(Some("x:{y}"));
    let prompts = vec![listed(List::Prompts, "p")];
    let other = Arc::new(Catalogue { prompts, ..(*other).clone() });
    assert_eq!(
        merge.show(view(&[Some(other)])),
        [List::Tools, List::Prompts, List::Templates].map(MergeAction::Tell)
    );
}

#[test]
fn the_view_is_the_one_that_was_shown_last() {
    let mut merge = shown(&[Some(tools(&["x"]))]);
    assert!(merge.view().tool("s0_x").is_some());
    let next = view(&[Some(tools(&["y"]))]);
    merge.show(Arc::clone(&next));
    assert!(Arc::ptr_eq(&merge.view(), &next));
}

#[test]
fn a_merge_is_stale_until_it_has_shown_something() {
    assert!(Merge::new([None]).is_stale());
    assert!(!shown(&[None]).is_stale());
}

#[test]
fn a_changed_list_is_asked_for_once_at_a_time() {
    let mut merge = shown(&[Some(tools(&["x"])), Some(tools(&["y"]))]);
    assert_eq!(merge.list_changed(1, List::Tools), [MergeAction::Refresh(1)]);
    assert!(merge.list_changed(1, List::Tools).is_empty());
    assert!(merge.list_changed(1, List::Prompts).is_empty());
    assert_eq!(merge.list_changed(0, List::Prompts), [MergeAction::Refresh(0)], "each for itself");
}

#[test]
fn changed_resources_are_told_at_once_because_they_are_never_kept() {
    let mut merge = shown(&[Some(resources(None))]);
    let tell = MergeAction::Tell(List::Resources);
    assert_eq!(merge.list_changed(0, List::Resources), [tell, MergeAction::Refresh(0)]);
    assert_eq!(merge.list_changed(0, List::Resources), [tell]);
}

#[test]
fn refreshed_lists_are_shown_soon_if_they_differ() {
    let mut merge = shown(&[Some(tools(&["x"]))]);
    merge.refresh(0);
    assert!(merge.refreshed(0, Some((*tools(&["x"])).clone())).is_empty());
    assert!(!merge.is_stale());
    merge.refresh(0);
    assert_eq!(merge.refreshed(0, Some((*tools(&["y"])).clone())), [MergeAction::ShowSoon]);
    assert!(merge.is_stale());
    assert_eq!(merge.knowledge(0).catalogue().unwrap().tools[0].own, "y");
}

#[test]
fn lists_that_changed_while_they_were_asked_for_are_asked_for_later_once_more() {
    let mut merge = shown(&[Some(tools(&["x"]))]);
    assert_eq!(merge.refresh(0), Some(MergeAction::Refresh(0)));
    assert_eq!(merge.refresh(0), None);
    assert_eq!(
        merge.refreshed(0, Some((*tools(&["y"])).clone())),
        [MergeAction::ShowSoon, MergeAction::RefreshLater(0)]
    );
    assert_eq!(merge.refresh(0), None, "the later one is under way");
    assert_eq!(merge.refreshed(0, None), [MergeAction::RefreshLater(0)]);
    assert!(merge.refreshed(0, None).is_empty());
    assert_eq!(merge.refresh(0), Some(MergeAction::Refresh(0)));
}

#[test]
fn lists_of_the_sessions_own_worker_end_trouble() {
    let now = Instant::now();
    let mut merge = Merge::new([None]);
    merge.consider(0, PAUSE, now);
    merge.looked(0, Err("broken".to_owned()), now);
    merge.refreshed(0, Some(Catalogue::default()));
    assert_eq!(merge.knowledge(0).trouble(), None);
    assert_eq!(merge.consider(0, PAUSE, now + PAUSE), None);
}

#[test]
fn servers_on_a_machine_that_comes_back_are_looked_at_anew() {
    let now = Instant::now();
    let mut merge = shown(&[Some(tools(&["x"])), Some(tools(&["y"]))]);
    assert_eq!(merge.attachment_changed(&[1]), [MergeAction::ShowSoon]);
    assert!(merge.is_stale());
    assert_eq!(merge.consider(0, PAUSE, now), None, "it runs elsewhere");
    assert_eq!(merge.consider(1, PAUSE, now), Some(MergeAction::Look(1)));
}

#[test]
fn servers_on_a_machine_that_goes_stay_known_but_are_shown_anew() {
    let mut merge = shown(&[Some(tools(&["x"]))]);
    assert_eq!(merge.attachment_changed(&[]), [MergeAction::ShowSoon]);
    assert!(merge.knowledge(0).catalogue().is_some());
}
