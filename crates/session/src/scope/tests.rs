//! Tests of roots answers and of the operator's rules, in directories of their own.

mod rules;

use super::*;
use wire::Message;

fn answer(text: &str) -> RootsAnswer {
    match Message::parse(text.to_owned().into()) {
        Ok(Message::Response(response)) => RootsAnswer::read(&response),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_each_kind_of_answer_means() {
    let ok = |result: &str| answer(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
    assert_eq!(
        ok(r#"{"roots":[{"uri":"file:///a","name":"x"},{"uri":"/b"}],"_meta":{}}"#),
        RootsAnswer::Named(vec!["file:///a".into(), "/b".into()])
    );
    assert_eq!(ok(r#"{"roots":[]}"#), RootsAnswer::None);
    assert_eq!(
        answer(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#),
        RootsAnswer::None
    );
    for bad in
        ["{}", "null", "[]", r#"{"roots":{}}"#, r#"{"roots":["file:///a"]}"#, r#"{"roots":[{"uri":7}]}"#]
    {
        assert!(matches!(ok(bad), RootsAnswer::Malformed(_)), "{bad}");
    }
    let twice = r#"{"roots":[{"uri":"file:///a","uri":"file:///b"}]}"#;
    assert!(matches!(ok(twice), RootsAnswer::Malformed(_)), "a key that stands twice");
    let many = format!(r#"{{"roots":[{}]}}"#, vec![r#"{"uri":"file:///a"}"#; MAX_ROOTS + 1].join(","));
    assert!(matches!(ok(&many), RootsAnswer::Malformed(_)));
}
