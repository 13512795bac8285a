//! Bodies: what is accepted is JSON, has no key twice that the gateway looks at, and changes only where it is told to.

use bytes::Bytes;

use super::framing::check_event_of;
use super::tree::Tree;
use crate::limits::{MAX_BATCH, MAX_DEPTH, MAX_ID_BYTES};
use crate::{
    Body, Id, LogLevel, Message, MessageError, Notification, Outcome, Request, Response, Text, code,
};

/// A number that stands for the gateway's own id.
const OWN_ID: u64 = 18_446_744_073_709_551_557;

/// The keys that decide what the gateway does. None may occur twice.
const ENVELOPE_KEYS: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];
const PARAMETER_KEYS: &[&str] =
    &["_meta", "progressToken", "requestId", "uri", "name", "cursor", "ref", "taskId", "level", "task"];
const META_KEYS: &[&str] = &[
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
];
const REFERENCE_KEYS: &[&str] = &["name", "uri"];

pub(super) fn check_body(text: &[u8]) {
    let tree = Tree::read(text);
    match Body::parse(Bytes::copy_from_slice(text)) {
        Ok(Body::Single(message)) => check_message(&message, &json(tree)),
        Ok(Body::Batch(messages)) => {
            let Tree::Array(items) = json(tree) else { panic!("a batch is an array") };
            assert!((1..=MAX_BATCH).contains(&messages.len()));
            assert_eq!(messages.len(), items.len());
            for (message, item) in messages.iter().zip(&items) {
                check_message(message, item);
            }
        }
        Err(error) => check_refusal(&error, text, tree.as_ref()),
    }
}

fn json(tree: Option<Tree>) -> Tree {
    let Some(tree) = tree else { panic!("what is no JSON was accepted") };
    tree
}

/// An error does not call JSON something else, and carries no id but that of the message.
fn check_refusal(error: &MessageError, text: &[u8], tree: Option<&Tree>) {
    assert!(!error.reason.is_empty());
    // A tree may hold texts with half a surrogate pair, which parsers call no JSON.
    if serde_json::from_slice::<serde_json::Value>(text).is_ok() {
        assert_eq!(error.code, code::INVALID_REQUEST, "{tree:?}");
    }
    let items = match tree {
        Some(Tree::Array(items)) => items.as_slice(),
        tree => tree.map_or(&[][..], std::slice::from_ref),
    };
    if let Some(id) = &error.id {
        let has_it = |item: &Tree| item.all("id").count() == 1 && item.at(&["id"]) == Some(&tree_of(id));
        assert!(items.iter().any(has_it), "{id:?} is no id of the message");
    }
}

fn check_message(message: &Message, tree: &Tree) {
    assert!(tree.depth() <= MAX_DEPTH);
    assert_eq!(tree.at(&["jsonrpc"]), Some(&Tree::Text("2.0".to_owned())));
    check_keys(tree, &[], ENVELOPE_KEYS);
    if !matches!(message, Message::Response(_)) {
        check_keys(tree, &["params"], PARAMETER_KEYS);
        check_keys(tree, &["params", "_meta"], META_KEYS);
        check_keys(tree, &["params", "ref"], REFERENCE_KEYS);
    }
    let method = tree.at(&["method"]);
    assert_eq!(method, message.method().map(|method| Tree::Text(method.to_owned())).as_ref());
    match message {
        Message::Request(request) => check_request(request, tree),
        Message::Notification(notification) => check_notification(notification, tree),
        Message::Response(response) => check_response(response, tree),
    }
}

fn check_keys(tree: &Tree, path: &[&str], keys: &[&str]) {
    for key in keys {
        let count = tree.at(path).map_or(0, |object| object.all(key).count());
        assert!(count <= 1, "{key} occurs {count} times in {path:?}");
    }
}

/// An id has the type that it has in the message: a number is not its text.
fn check_id(id: &Id, tree: &Tree) {
    assert_eq!(tree.at(&["id"]), Some(&tree_of(id)));
    assert!(id.as_json().len() <= MAX_ID_BYTES * 6, "escapes may be spelled longer, but not more than that");
    assert_eq!(id.as_json().starts_with('"'), matches!(tree_of(id), Tree::Text(_)));
}

fn tree_of(id: &Id) -> Tree {
    json(Tree::read(id.as_json().as_bytes()))
}

fn check_request(request: &Request, tree: &Tree) {
    check_id(&request.id, tree);
    let own = Tree::number(OWN_ID);
    let token: &[&str] = &["params", "_meta", "progressToken"];
    let sent = tree.with(&["id"], &own).with(token, &own);
    let up = request.toward_upstream(OWN_ID);
    assert_same(&up, &sent);
    let Ok(Message::Request(arrived)) = Message::parse(up) else { panic!("it is no request any more") };
    assert_eq!(arrived.id.as_number(), Some(OWN_ID));
    assert_eq!(arrived.method, request.method);
    assert_same(&request.with_id(&Id::number(OWN_ID)).into_bytes(), &tree.with(&["id"], &own));
    assert_same(&request.with_id(&request.id).into_bytes(), tree);
    assert_eq!(request.wants_progress().map(|token| json(Tree::read(&token))).as_ref(), tree.at(token));
    assert_eq!(
        request.params_text().and_then(|text| Tree::read(text.as_bytes())).as_ref(),
        tree.at(&["params"])
    );
    let own_name = if tree.at(&["params", "name"]).is_some() {
        ["params", "name"].as_slice()
    } else {
        &["params", "ref", "name"]
    };
    let name = tree.at(own_name).and_then(text_of);
    assert_eq!(request.name(), name);
    let mut renamed = request.clone();
    renamed.call_by("a \"name\"\n");
    assert_same(
        &renamed.toward_upstream(OWN_ID),
        &sent.with(own_name, &Tree::Text("a \"name\"\n".to_owned())),
    );
    assert_same(
        &request.with_level(OWN_ID, LogLevel::Notice),
        &sent.with(&["params", "level"], &Tree::Text("notice".to_owned())),
    );
    check_event_of(request.with_id(&request.id));
}

fn text_of(tree: &Tree) -> Option<String> {
    match tree {
        Tree::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn check_notification(notification: &Notification, tree: &Tree) {
    assert!(tree.at(&["id"]).is_none());
    assert_same(&notification.text(), tree);
    let (token, cancelled): (&[&str], &[&str]) = (&["params", "progressToken"], &["params", "requestId"]);
    let own = Tree::number(OWN_ID);
    let retold = notification.with_progress_token(OWN_ID.to_string().as_bytes());
    assert_same(&retold.into_bytes(), &tree.with(token, &own));
    let recalled = notification.with_cancelled_request(&Id::number(OWN_ID));
    assert_same(&recalled.into_bytes(), &tree.with(cancelled, &own));
    for (id, path) in [(notification.progress_token(), token), (notification.cancelled_request(), cancelled)]
    {
        if let Some(id) = id {
            assert_eq!(tree.at(path), Some(&tree_of(&id)));
        }
    }
    check_event_of(notification.text().into());
}

fn check_response(response: &Response, tree: &Tree) {
    check_id(&response.id, tree);
    let (key, text) = match response.outcome() {
        Outcome::Result(text) => ("result", text),
        Outcome::Error(text) => ("error", text),
    };
    assert_eq!(response.is_error(), key == "error");
    assert_eq!(tree.at(&[key]), Tree::read(text.as_bytes()).as_ref());
    assert!(tree.at(&[if response.is_error() { "result" } else { "error" }]).is_none());
    let returned = response.with_id(&Id::number(OWN_ID));
    assert_same(&returned.clone().into_bytes(), &tree.with(&["id"], &Tree::number(OWN_ID)));
    check_event_of(returned);
}

/// A text is on one line and means the same.
fn assert_same(text: &Bytes, tree: &Tree) {
    assert!(!text.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
    assert_eq!(Tree::read(text).as_ref(), Some(tree));
    assert_eq!(Text::from(text.clone()).len(), text.len());
}
