//! Tests of reading pages and capabilities.

use super::*;
use crate::testing;

/// The names of the items on one page, and the cursor of the next page.
fn read(list: List, page: &str) -> (Vec<String>, Option<String>) {
    let mut items = Vec::new();
    let cursor = read_page(page, list, &mut items);
    (items.into_iter().map(|item| item.own).collect(), cursor)
}

#[test]
fn each_list_has_its_field_and_its_key() {
    for (list, page) in [
        (List::Tools, r#"{"tools":[{"name":"x"}]}"#),
        (List::Prompts, r#"{"prompts":[{"name":"x"}]}"#),
        (List::Resources, r#"{"resources":[{"uri":"x","name":"y"}]}"#),
        (List::Templates, r#"{"resourceTemplates":[{"uriTemplate":"x","name":"y"}]}"#),
    ] {
        assert_eq!(read(list, page), (vec!["x".to_owned()], None), "{list:?}");
    }
}

#[test]
fn items_are_kept_as_their_server_wrote_them() {
    let mut items = Vec::new();
    let page = r#"{"tools":[ {"name":"x" , "n":1.50,"y":"\u00e9"} ]}"#;
    read_page(page, List::Tools, &mut items);
    assert_eq!(items[0].text.get(), r#"{"name":"x" , "n":1.50,"y":"\u00e9"}"#);
}

#[test]
fn pages_follow_each_other() {
    let mut items = Vec::new();
    let cursor = read_page(r#"{"tools":[{"name":"x"}],"nextCursor":"c"}"#, List::Tools, &mut items);
    assert_eq!(cursor.as_deref(), Some("c"));
    let cursor = read_page(r#"{"tools":[{"name":"y"}]}"#, List::Tools, &mut items);
    assert_eq!(cursor, None);
    assert_eq!(items.iter().map(|item| item.own.as_str()).collect::<Vec<_>>(), ["x", "y"]);
}

#[test]
fn a_cursor_that_is_no_string_ends_the_list() {
    for cursor in ["null", "7", "{}"] {
        let page = format!(r#"{{"tools":[],"nextCursor":{cursor}}}"#);
        assert_eq!(read(List::Tools, &page), (vec![], None), "{cursor}");
    }
}

#[test]
fn items_without_a_name_are_left_out() {
    let page = r#"{"tools":[{"name":"x"},{},{"name":""},{"name":7},7,null,{"name":"y"}],"nextCursor":"c"}"#;
    assert_eq!(read(List::Tools, page), (vec!["x".to_owned(), "y".to_owned()], Some("c".to_owned())));
}

#[test]
fn a_page_that_cannot_be_read_is_empty_and_the_last() {
    for page in ["7", "[]", "null", r#"{"tools":[],"tools":[]"#] {
        assert_eq!(read(List::Tools, page), (vec![], None), "{page}");
    }
    assert_eq!(read(List::Tools, r#"{"tools":7,"nextCursor":"c"}"#), (vec![], Some("c".to_owned())));
}

#[test]
fn capabilities_are_what_the_server_declared() {
    let of =
        |capabilities: &str| ServerCapabilities::of(&testing::initialize_result("2025-11-25", capabilities));
    assert_eq!(of("{}"), ServerCapabilities::default());
    let all = of(
        r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{},"tasks":{}}"#,
    );
    let expected = ServerCapabilities {
        tools: true,
        prompts: true,
        resources: true,
        subscribe: true,
        completions: true,
        logging: true,
        tasks: true,
    };
    assert_eq!(all, expected);
    let some = of(r#"{"tools":true,"prompts":null,"resources":{"subscribe":"yes"}}"#);
    assert_eq!(some, ServerCapabilities { resources: true, ..ServerCapabilities::default() });
}

#[test]
fn capabilities_of_several_servers_add_up() {
    let (tools, prompts) = (
        ServerCapabilities { tools: true, logging: true, ..ServerCapabilities::default() },
        ServerCapabilities { prompts: true, logging: true, ..ServerCapabilities::default() },
    );
    let both =
        ServerCapabilities { tools: true, prompts: true, logging: true, ..ServerCapabilities::default() };
    assert_eq!(tools.or(prompts), both);
    assert_eq!(prompts.or(tools), both);
    assert_eq!(tools.or(ServerCapabilities::default()), tools);
}

#[test]
fn templates_are_there_where_resources_are() {
    let resources = ServerCapabilities { resources: true, ..ServerCapabilities::default() };
    let lists = [List::Tools, List::Prompts, List::Resources, List::Templates];
    assert_eq!(lists.map(|list| resources.has(list)), [false, false, true, true]);
}

#[test]
fn lists_are_equal_if_their_texts_are() {
    let catalogue = |text: &str| {
        let mut items = Vec::new();
        read_page(text, List::Tools, &mut items);
        Catalogue { tools: items, ..Catalogue::default() }
    };
    let first = catalogue(r#"{"tools":[{"name":"x"}]}"#);
    assert_eq!(first, catalogue(r#"{"tools":[ {"name":"x"} ]}"#));
    assert_ne!(first, catalogue(r#"{"tools":[{"name":"x","title":"t"}]}"#));
    assert_ne!(first, catalogue(r#"{"tools":[]}"#));
}
