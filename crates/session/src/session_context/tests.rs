//! Changes of a session's context, their bounds, and the search.

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn set(context: &mut SessionContext, update: serde_json::Value) -> Result<(), ContextError> {
    context.update(&serde_json::from_value(update).unwrap(), Author::Client, now())
}

#[test]
fn a_change_changes_what_it_names() {
    let mut context = SessionContext::default();
    assert!(context.is_empty());
    let first =
        serde_json::json!({"name": " release ", "labels": {"ticket": "AB-1", "urgent": ""}, "note": "a\nb"});
    set(&mut context, first).unwrap();
    assert_eq!(context.name.as_deref(), Some("release"));
    assert_eq!((context.notes[0].id, context.notes[0].by), (1, Author::Client));
    set(&mut context, serde_json::json!({"labels": {"urgent": null}, "note": "second"})).unwrap();
    assert_eq!(context.labels, BTreeMap::from([("ticket".to_owned(), "AB-1".to_owned())]));
    assert_eq!(context.name.as_deref(), Some("release"), "it stays");
    set(&mut context, serde_json::json!({"name": "", "removeNote": 2, "note": "third"})).unwrap();
    assert_eq!((context.name.as_deref(), context.notes.last().unwrap().id), (None, 3), "no id comes twice");
}

#[test]
fn a_change_is_made_as_a_whole_or_not_at_all() {
    let mut context = SessionContext::default();
    let refused = serde_json::json!({"name": "x", "labels": {"a b": "c"}});
    assert_eq!(set(&mut context, refused), Err(ContextError::BadLabel("a b".to_owned())));
    assert!(context.is_empty());
    let unknown = serde_json::json!({"name": "x", "removeNote": 7});
    assert_eq!(set(&mut context, unknown), Err(ContextError::NoSuchNote(7)));
    assert!(serde_json::from_str::<ContextUpdate>(r#"{"naem": "x"}"#).is_err());
}

#[test]
fn everything_is_bounded_and_without_control_characters() {
    let mut context = SessionContext::default();
    for name in ["\u{1b}[31mred", "a\nb", &"x".repeat(MAX_NAME + 1)] {
        assert_eq!(set(&mut context, serde_json::json!({"name": name})), Err(ContextError::BadName));
    }
    for (key, value) in
        [("", "x"), ("-k", "x"), ("ü", "x"), ("k", "\u{7}"), ("k", &"x".repeat(MAX_LABEL_VALUE + 1))]
    {
        let refused = set(&mut context, serde_json::json!({"labels": {key: value}}));
        assert!(matches!(refused, Err(ContextError::BadLabel(_))), "{key}: {refused:?}");
    }
    for note in ["", "  ", "a\u{1b}b", &"x".repeat(MAX_NOTE + 1)] {
        assert_eq!(set(&mut context, serde_json::json!({"note": note})), Err(ContextError::BadNote));
    }
    for number in 0..MAX_LABELS {
        set(&mut context, serde_json::json!({"labels": {format!("k{number}"): "x"}})).unwrap();
    }
    assert_eq!(
        set(&mut context, serde_json::json!({"labels": {"more": ""}})),
        Err(ContextError::TooManyLabels)
    );
    for _ in 0..MAX_NOTES {
        set(&mut context, serde_json::json!({"note": "ä".repeat(MAX_NOTE)})).unwrap();
    }
    assert_eq!(set(&mut context, serde_json::json!({"note": "x"})), Err(ContextError::TooManyNotes));
    set(&mut context, serde_json::json!({"note": "x", "removeNote": 1})).unwrap();
    for number in 0..100 {
        context.note_agent(&format!("agent {number}\u{1b}"), now());
    }
    assert_eq!((context.agents.len(), context.agents[0].name.as_str()), (MAX_AGENTS, "agent 0"));
    assert!(!context.note_agent("agent 0", now()));
    assert!(serde_json::to_string(&context).unwrap().len() < 256 * 1024);
}

#[test]
fn sessions_are_found_by_words_and_labels() {
    let mut context = SessionContext::default();
    let update =
        serde_json::json!({"name": "Release 7", "labels": {"ticket": "AB-1"}, "note": "waits for QA"});
    set(&mut context, update).unwrap();
    let finds = |search: &str, labels: &[&str]| {
        let search = (!search.is_empty()).then(|| search.to_owned());
        let query = SessionQuery { search, ..SessionQuery::default() };
        let query = labels.iter().fold(query, |query, label| query.with_label(label));
        query.finds(&context, ["/srv/shop"].into_iter())
    };
    for search in ["", "release", "RELEASE qa", "ab-1 shop", "ticket"] {
        assert!(finds(search, &[]), "{search}");
    }
    assert!(!finds("release other", &[]));
    assert!(finds("", &["ticket"]) && finds("qa", &["ticket=AB-1"]));
    assert!(
        !finds("", &["ticket=AB-2"])
            && !finds("", &["ticket=AB-1", "urgent"])
            && !finds("nothing", &["ticket"])
    );
}
