//! Tests of results that name the window they belong to.

use super::*;
use crate::testing::{client, context, message, response};

/// The answer as the client gets it.
fn told(client: &Client, result: &str) -> Value {
    let text = with_instance(client, &response(1, result), &Id::number(42));
    serde_json::from_slice(&text.into_bytes()).unwrap()
}

#[test]
fn a_result_names_the_window_and_the_session() {
    let client = client(&context());
    let answer = told(&client, r#"{"content":[1.50],"x":{}}"#);
    assert_eq!(answer["id"], 42);
    assert_eq!((&answer["result"]["content"], &answer["result"]["x"]), (&json!([1.5]), &json!({})));
    let meta = &answer["result"]["_meta"][KEY];
    assert_eq!(meta["instance_id"], client.instance().as_str());
    assert_eq!(meta["session"], client.handle().to_string());
    assert_eq!(meta["project"], Value::Null, "no scope is locked");
    assert!(meta["timestamp"].is_string());
}

#[test]
fn what_stands_in_meta_stays() {
    let answer = told(&client(&context()), r#"{"_meta":{"own":7}}"#);
    assert_eq!(answer["result"]["_meta"]["own"], 7);
    assert!(answer["result"]["_meta"][KEY].is_object());
}

#[test]
fn a_server_cannot_speak_in_the_gateways_place() {
    let forged = format!(r#"{{"_meta":{{"{KEY}":{{"instance_id":"forged"}}}}}}"#);
    let client = client(&context());
    let answer = told(&client, &forged);
    assert_eq!(answer["result"]["_meta"][KEY]["instance_id"], client.instance().as_str());
}

#[test]
fn results_without_room_for_meta_stay_as_they_are() {
    let client = client(&context());
    for result in ["null", "[]", "7", r#"{"_meta":3}"#] {
        let answer = told(&client, result);
        assert_eq!(answer["id"], 42);
        assert_eq!(answer["result"], serde_json::from_str::<Value>(result).unwrap());
    }
}

#[test]
fn errors_stay_as_they_are() {
    let error = message(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#);
    let wire::Message::Response(error) = error else { panic!("a response") };
    let text = with_instance(&client(&context()), &error, &Id::number(42)).into_bytes();
    assert_eq!(&text[..], br#"{"jsonrpc":"2.0","id":42,"error":{"code":-1,"message":"no"}}"#);
}
