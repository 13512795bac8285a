//! Which server each request is for.

use super::*;
use crate::testing::request;

fn member(place: usize) -> Destination {
    Destination::Member { place, name: None }
}

fn destination(merge: &Merge, method: &str, params: &str) -> Destination {
    merge.destination(&request(1, method, params))
}

#[test]
fn what_concerns_all_servers_is_answered_by_the_gateway() {
    let merge = shown(&[Some(tools(&["x"])), Some(tools(&["y"]))]);
    for (method, answer) in [
        (method::PING, Answer::Pong),
        (method::TOOLS_LIST, Answer::Page(List::Tools)),
        (method::PROMPTS_LIST, Answer::Page(List::Prompts)),
        (method::TEMPLATES_LIST, Answer::Page(List::Templates)),
        (method::RESOURCES_LIST, Answer::Resources),
        (method::SET_LEVEL, Answer::Level),
        (method::TASKS_LIST, Answer::Tasks),
    ] {
        assert_eq!(destination(&merge, method, "{}"), Destination::Gateway(answer), "{method}");
    }
}

#[test]
fn a_tool_is_for_the_server_that_has_it_under_the_servers_own_name() {
    let merge = shown(&[Some(tools(&["x"])), Some(tools(&["x"]))]);
    for (name, place) in [("s0_x", 0), ("s1_x", 1)] {
        let expected = Destination::Member { place, name: Some("x".to_owned()) };
        assert_eq!(destination(&merge, method::TOOLS_CALL, &json!({ "name": name }).to_string()), expected);
    }
}

#[test]
fn a_name_that_is_the_servers_own_is_left_as_it_is() {
    let catalogue = tools(&["x"]);
    let rules = ToolRules::default();
    let part = Part {
        name: "s0",
        rules: &rules,
        catalogue: Some(&catalogue),
        names: NameMode::None,
        hides: &[],
        is_shown: true,
    };
    let mut merge = Merge::new([Some(Arc::clone(&catalogue))]);
    merge.show(Arc::new(View::of(&[part], &config::ToolRules::default())));
    assert_eq!(destination(&merge, method::TOOLS_CALL, r#"{"name":"x"}"#), member(0));
}

#[test]
fn tools_and_prompts_are_names_of_their_own() {
    let prompts = vec![listed(List::Prompts, "x")];
    let with_prompt = Arc::new(Catalogue { prompts, ..Catalogue::default() });
    let merge = shown(&[Some(tools(&["x"])), Some(with_prompt)]);
    let named = |place| Destination::Member { place, name: Some("x".to_owned()) };
    let unknown = |what, name: &str| Destination::Unknown { what, name: name.to_owned() };
    assert_eq!(destination(&merge, method::TOOLS_CALL, r#"{"name":"s0_x"}"#), named(0));
    assert_eq!(destination(&merge, method::PROMPTS_GET, r#"{"name":"s1_x"}"#), named(1));
    assert_eq!(destination(&merge, method::TOOLS_CALL, r#"{"name":"s1_x"}"#), unknown("tool", "s1_x"));
    assert_eq!(destination(&merge, method::PROMPTS_GET, r#"{"name":"s0_x"}"#), unknown("prompt", "s0_x"));
}

#[test]
fn a_completion_is_for_the_server_of_its_prompt_or_resource() {
    let prompts = vec![listed(List::Prompts, "p")];
    let with_prompt = Arc::new(Catalogue { prompts, ..Catalogue::default() });
    let merge = shown(&[Some(with_prompt), Some(resources(Some("memo://{x}"))), Some(resources(None))]);
    let complete =
        |reference: &str| destination(&merge, method::COMPLETE, &format!(r#"{{"ref":{reference}}}"#));
    let named = Destination::Member { place: 0, name: Some("p".to_owned()) };
    assert_eq!(complete(r#"{"type":"ref/prompt","name":"s0_p"}"#), named);
    assert_eq!(complete(r#"{"type":"ref/resource","uri":"memo://{x}"}"#), member(1));
    assert_eq!(
        complete(r#"{"type":"ref/prompt","name":"other"}"#),
        Destination::Unknown { what: "prompt", name: "other".to_owned() }
    );
    assert!(matches!(complete("{}"), Destination::Incomplete(_)));
}

#[test]
fn a_request_that_lacks_its_name_or_resource_is_incomplete() {
    let merge = shown(&[Some(resources(None))]);
    for method in [
        method::TOOLS_CALL,
        method::PROMPTS_GET,
        method::COMPLETE,
        method::RESOURCES_READ,
        method::SUBSCRIBE,
        method::UNSUBSCRIBE,
    ] {
        for params in ["{}", r#"{"name":7,"uri":7}"#] {
            let destination = destination(&merge, method, params);
            assert!(matches!(destination, Destination::Incomplete(_)), "{method}: {destination:?}");
        }
    }
}

#[test]
fn a_method_that_only_a_server_can_know_goes_to_it_if_it_is_the_only_one() {
    assert_eq!(destination(&shown(&[None]), "unheard/of", "{}"), member(0));
    assert_eq!(destination(&shown(&[None, None]), "unheard/of", "{}"), Destination::Ambiguous);
    assert_eq!(destination(&shown(&[]), "unheard/of", "{}"), Destination::Ambiguous);
}

#[test]
fn a_listed_resource_is_for_the_server_that_listed_it() {
    let mut merge = shown(&[Some(resources(Some("memo://{x}"))), Some(resources(None))]);
    let lists =
        vec![(0, vec![listed(List::Resources, "a:1")]), (1, vec![listed(List::Resources, "memo://1")])];
    merge.note_resources(lists);
    for method in [method::RESOURCES_READ, method::SUBSCRIBE, method::UNSUBSCRIBE] {
        assert_eq!(destination(&merge, method, r#"{"uri":"a:1"}"#), member(0));
        assert_eq!(
            destination(&merge, method, r#"{"uri":"memo://1"}"#),
            member(1),
            "a list counts more than a template"
        );
        assert_eq!(destination(&merge, method, r#"{"uri":"memo://2"}"#), member(0), "by its template");
        let unknown = Destination::UnknownResource("b:1".to_owned());
        assert_eq!(destination(&merge, method, r#"{"uri":"b:1"}"#), unknown);
    }
}

#[test]
fn the_only_server_with_resources_gets_those_that_no_list_has() {
    let merge = shown(&[Some(tools(&["x"])), Some(resources(None)), None]);
    assert_eq!(destination(&merge, method::RESOURCES_READ, r#"{"uri":"b:1"}"#), member(1));
    assert!(!merge.has_resources(0) && merge.has_resources(1) && !merge.has_resources(2));
}

#[test]
fn while_a_server_is_looked_at_none_is_the_only_one_with_resources() {
    let now = Instant::now();
    let mut merge = shown(&[Some(resources(None)), None]);
    merge.consider(1, Duration::ZERO, now);
    let unknown = Destination::UnknownResource("b:1".to_owned());
    assert_eq!(destination(&merge, method::RESOURCES_READ, r#"{"uri":"b:1"}"#), unknown);
    merge.looked(1, Err("broken".to_owned()), now);
    assert_eq!(destination(&merge, method::RESOURCES_READ, r#"{"uri":"b:1"}"#), member(0));
}

#[test]
fn the_first_server_that_has_a_uri_keeps_it() {
    let mut merge = shown(&[None, None]);
    let both =
        |place| (place, vec![listed(List::Resources, "a:1"), listed(List::Resources, &format!("b:{place}"))]);
    let texts = merge.note_resources(vec![both(0), both(1)]);
    assert_eq!(texts.len(), 3);
    assert_eq!(destination(&merge, method::RESOURCES_READ, r#"{"uri":"a:1"}"#), member(0));
    assert_eq!(destination(&merge, method::RESOURCES_READ, r#"{"uri":"b:1"}"#), member(1));
}

#[test]
fn resources_of_an_earlier_list_are_forgotten() {
    let mut merge = shown(&[None, None]);
    merge.note_resources(vec![(0, vec![listed(List::Resources, "a:1")])]);
    merge.note_resources(vec![(1, vec![listed(List::Resources, "a:2")])]);
    let unknown = Destination::UnknownResource("a:1".to_owned());
    assert_eq!(destination(&merge, method::RESOURCES_READ, r#"{"uri":"a:1"}"#), unknown);
}

#[test]
fn a_task_is_for_the_server_that_runs_it() {
    let mut merge = shown(&[None, None]);
    merge.note_task(1, "t".to_owned());
    for method in [method::TASKS_GET, method::TASKS_RESULT, method::TASKS_CANCEL] {
        assert_eq!(destination(&merge, method, r#"{"taskId":"t"}"#), member(1));
        for params in [r#"{"taskId":"other"}"#, r#"{"taskId":7}"#, "{}"] {
            assert_eq!(destination(&merge, method, params), Destination::UnknownTask, "{params}");
        }
    }
    assert!(merge.owns_task("t") && !merge.owns_task("other"));
}

#[test]
fn only_servers_with_tasks_of_the_session_are_asked_for_them() {
    let mut merge = shown(&[None, None, None]);
    assert!(merge.task_owners().is_empty());
    for (place, task) in [(2, "x"), (0, "y"), (2, "z")] {
        merge.note_task(place, task.to_owned());
    }
    assert_eq!(merge.task_owners(), HashSet::from([0, 2]));
}

#[test]
fn so_many_tasks_are_remembered_and_no_more() {
    let mut merge = shown(&[None]);
    for number in 0..=MAX_TASKS {
        merge.note_task(0, format!("t{number}"));
    }
    assert!(merge.owns_task("t0") && merge.owns_task(&format!("t{}", MAX_TASKS - 1)));
    assert!(!merge.owns_task(&format!("t{MAX_TASKS}")));
}
