//! Names, order, schemas and pages of merged lists.

use std::collections::BTreeMap;

use super::*;

fn tool(name: &str) -> Listed {
    listed(name, &json!({"name": name, "inputSchema": {"type": "object"}}))
}

fn listed(own: &str, item: &Value) -> Listed {
    Listed { own: own.to_owned(), text: serde_json::value::to_raw_value(item).unwrap() }
}

fn catalogue(tools: Vec<Listed>) -> Arc<Catalogue> {
    Arc::new(Catalogue { tools, ..Catalogue::default() })
}

fn part<'a>(name: &'a str, rules: &'a ToolRules, catalogue: &'a Arc<Catalogue>) -> Part<'a> {
    Part { name, rules, catalogue: Some(catalogue), names: NameMode::Prefix, hides: &[], is_shown: true }
}

fn names_of(view: &View) -> Vec<String> {
    let page: Value = serde_json::from_slice(&view.page(List::Tools, None).unwrap()).unwrap();
    page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_mode_names_tools_its_own_way_and_in_the_order_of_the_configuration() {
    let (rules, git, hub) =
        (ToolRules::default(), catalogue(vec![tool("log"), tool("diff-all")]), catalogue(vec![tool("log")]));
    let names = |names| {
        let with = |part| Part { names, ..part };
        names_of(&View::of(
            &[with(part("git", &rules, &git)), with(part("git-hub", &rules, &hub))],
            &ToolRules::default(),
        ))
    };
    assert_eq!(names(NameMode::Prefix), ["git_log", "git_diff-all", "git-hub_log"]);
    assert_eq!(names(NameMode::Conflict), ["git_log", "diff-all", "git-hub_log"]);
    assert_eq!(names(NameMode::None), ["log", "diff-all"]);
}

#[test]
fn a_name_leads_to_its_server_and_own_name_whatever_it_looks_like() {
    let rules = ToolRules::default();
    // With their prefixes, `b_c` of the first server and `c` of the second would both be `a_b_c`.
    let (first, second) = (catalogue(vec![tool("b_c"), tool("ö.x")]), catalogue(vec![tool("c")]));
    let view = View::of(&[part("a", &rules, &first), part("a_b", &rules, &second)], &ToolRules::default());
    let names = names_of(&view);
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3, "{names:?}");
    let targets: Vec<_> = names.iter().map(|name| view.tool(name).unwrap()).collect();
    assert_eq!((targets[0].member, targets[0].own.as_str()), (0, "b_c"));
    assert_eq!((targets[1].member, targets[1].own.as_str()), (0, "ö.x"));
    assert_eq!((targets[2].member, targets[2].own.as_str()), (1, "c"));
}

#[test]
fn long_names_are_cut_and_stay_apart() {
    let rules = ToolRules::default();
    let long = "x".repeat(80);
    let both = catalogue(vec![tool(&format!("{long}1")), tool(&format!("{long}2"))]);
    let names = names_of(&View::of(&[part("server", &rules, &both)], &ToolRules::default()));
    assert!(names.iter().all(|name| name.len() == MAX_NAME), "{names:?}");
    assert_ne!(names[0], names[1]);
}

#[test]
fn rules_choose_and_rename() {
    let rules = ToolRules {
        allow: vec!["read_*".to_owned(), "rm".to_owned()],
        deny: vec!["*_secret".to_owned()],
        aliases: BTreeMap::from([("rm".to_owned(), "delete".to_owned())]),
    };
    let tools = catalogue(["read_a", "read_secret", "write", "rm"].map(tool).to_vec());
    let view = View::of(&[part("f", &rules, &tools)], &ToolRules::default());
    assert_eq!(names_of(&view), ["f_read_a", "delete"]);
    assert!(view.tool("f_write").is_none() && view.tool("f_rm").is_none());
}

#[test]
fn one_bad_schema_does_not_spoil_the_list() {
    let rules = ToolRules::default();
    let bad = [
        json!({"name": "t"}),
        json!({"name": "t", "inputSchema": null}),
        json!({"name": "t", "inputSchema": {"type": "string"}, "outputSchema": 7, "description": 5, "annotations": []}),
        json!({"name": "t", "inputSchema": {"type": "object", "properties": [], "required": "x"}}),
    ];
    for item in bad {
        let tools = catalogue(vec![listed("t", &item)]);
        let view = View::of(&[part("s", &rules, &tools)], &ToolRules::default());
        let page: Value = serde_json::from_slice(&view.page(List::Tools, None).unwrap()).unwrap();
        let tool = &page["tools"][0];
        assert_eq!(tool["inputSchema"], json!({"type": "object"}), "{item}");
        assert!(tool.get("outputSchema").is_none() && tool.get("description").is_none(), "{item}");
        assert_eq!(tool["_meta"][OWN_NAME_KEY], "t");
    }
    let good = json!({"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "$defs": {}}});
    let tools = catalogue(vec![listed("t", &good)]);
    let view = View::of(&[part("s", &rules, &tools)], &ToolRules::default());
    let page: Value = serde_json::from_slice(&view.page(List::Tools, None).unwrap()).unwrap();
    assert_eq!(page["tools"][0]["inputSchema"], good["inputSchema"]);
}

#[test]
fn many_items_come_in_pages_that_end() {
    let rules = ToolRules::default();
    let many = catalogue((0..=PAGE * 2).map(|number| tool(&format!("t{number}"))).collect());
    let view = View::of(&[Part { names: NameMode::None, ..part("s", &rules, &many) }], &ToolRules::default());
    let (mut cursor, mut seen) = (None::<String>, 0);
    loop {
        let page: Value =
            serde_json::from_slice(&view.page(List::Tools, cursor.as_deref()).unwrap()).unwrap();
        seen += page["tools"].as_array().unwrap().len();
        cursor = page["nextCursor"].as_str().map(ToOwned::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, PAGE * 2 + 1);
    assert!(view.page(List::Tools, Some("3")).is_none() && view.page(List::Tools, Some("x")).is_none());
}

#[test]
fn what_is_not_shown_keeps_its_name() {
    let (rules, tools) = (ToolRules::default(), catalogue(vec![tool("log")]));
    let hidden = Part { is_shown: false, ..part("git", &rules, &tools) };
    let view = View::of(&[hidden], &ToolRules::default());
    assert!(names_of(&view).is_empty());
    assert_eq!(view.tool("git_log").map(|target| target.own.as_str()), Some("log"));
}

#[test]
fn sessions_that_see_the_same_share_it() {
    let (rules, tools) = (ToolRules::default(), catalogue(vec![tool("log")]));
    let views = Views::default();
    let parts = [part("git", &rules, &tools)];
    let first = views.get(&parts, &ToolRules::default());
    assert!(Arc::ptr_eq(&first, &views.get(&parts, &ToolRules::default())));
    let other = catalogue(vec![tool("log")]);
    assert!(!Arc::ptr_eq(&first, &views.get(&[part("git", &rules, &other)], &ToolRules::default())));
}

#[test]
fn a_uri_belongs_to_the_template_with_the_longest_fixed_beginning() {
    let rules = ToolRules::default();
    let with = |template: &str| {
        let templates = vec![listed(template, &json!({"uriTemplate": template, "name": "n"}))];
        Arc::new(Catalogue { templates, ..Catalogue::default() })
    };
    let (all, docs) = (with("file:///{path}"), with("file:///docs/{page}"));
    let view = View::of(&[part("a", &rules, &all), part("b", &rules, &docs)], &ToolRules::default());
    assert_eq!(view.member_for_uri("file:///docs/x"), Some(1));
    assert_eq!(view.member_for_uri("file:///other"), Some(0));
    assert_eq!(view.member_for_uri("file:///{path}"), Some(0));
    assert_eq!(view.member_for_uri("memo://x"), None);
}

#[test]
fn what_is_here_is_not_shown_twice() {
    let rules = ToolRules::default();
    let own = catalogue(vec![tool("read")]);
    let of = |server: &str, name: &str| {
        let item = json!({"name": name, "inputSchema": {"type": "object"}, "_meta": {SERVER_KEY: server}});
        listed(name, &item)
    };
    let far = catalogue(vec![of("files", "f_read"), of("files", "files_read"), of("web", "web_search")]);
    let hides = ["files".to_owned()];
    let gateway = Part { names: NameMode::None, hides: &hides, ..part("gateway", &rules, &far) };
    let view = View::of(&[part("files", &rules, &own), gateway], &ToolRules::default());
    assert_eq!(names_of(&view), ["files_read", "web_search"]);
    let page: Value = serde_json::from_slice(&view.page(List::Tools, None).unwrap()).unwrap();
    assert_eq!(page["tools"][1]["_meta"][SERVER_KEY], "web");
}

/// A server that has these prompts.
fn prompts(names: &[&str]) -> Arc<Catalogue> {
    let prompts = names.iter().map(|name| listed(name, &json!({"name": name}))).collect();
    Arc::new(Catalogue { prompts, ..Catalogue::default() })
}

/// A server that has these templates.
fn templates(templates: &[&str]) -> Arc<Catalogue> {
    let templates = templates.iter().map(|it| listed(it, &json!({"uriTemplate": it, "name": "n"}))).collect();
    Arc::new(Catalogue { templates, ..Catalogue::default() })
}

fn page_of(view: &View, list: List) -> Value {
    serde_json::from_slice(&view.page(list, None).unwrap()).unwrap()
}

#[test]
fn a_list_without_items_has_one_empty_page() {
    let view = View::of(&[], &ToolRules::default());
    assert_eq!(page_of(&view, List::Tools), json!({"tools": []}));
    assert_eq!(page_of(&view, List::Prompts), json!({"prompts": []}));
    assert_eq!(page_of(&view, List::Templates), json!({"resourceTemplates": []}));
    assert!(view.page(List::Tools, Some("1")).is_none());
    assert_eq!(view.page(List::Tools, Some("0")), view.page(List::Tools, None));
}

#[test]
fn a_server_that_is_not_known_has_no_part() {
    let (rules, known) = (ToolRules::default(), catalogue(vec![tool("x")]));
    let unknown = Part { catalogue: None, ..part("a", &rules, &known) };
    let view = View::of(&[unknown, part("b", &rules, &known)], &ToolRules::default());
    assert_eq!(names_of(&view), ["b_x"]);
    assert_eq!(view.tool("b_x").unwrap().member, 1);
}

#[test]
fn rules_are_for_tools_and_leave_prompts_alone() {
    let rules = ToolRules {
        allow: vec!["none".to_owned()],
        deny: vec!["*".to_owned()],
        aliases: BTreeMap::from([("p".to_owned(), "q".to_owned())]),
    };
    let server = prompts(&["p"]);
    let view = View::of(&[part("s", &rules, &server)], &ToolRules::default());
    let target = Target { member: 0, own: "p".to_owned() };
    assert_eq!((view.prompt("s_p"), view.prompt("q"), view.tool("s_p")), (Some(&target), None, None));
}

#[test]
fn a_rule_that_is_no_pattern_matches_nothing() {
    let tools = catalogue(vec![tool("x"), tool("y")]);
    let deny = ToolRules { deny: vec!["[".to_owned(), "y".to_owned()], ..ToolRules::default() };
    assert_eq!(names_of(&View::of(&[part("s", &deny, &tools)], &ToolRules::default())), ["s_x"]);
    let allow = ToolRules { allow: vec!["[".to_owned()], ..ToolRules::default() };
    assert!(
        names_of(&View::of(&[part("s", &allow, &tools)], &ToolRules::default())).is_empty(),
        "it does not allow all"
    );
}

#[test]
fn two_items_of_one_server_that_want_the_same_name_stay_apart() {
    let rules = ToolRules::default();
    let tools = catalogue(vec![tool("a.b"), tool("a/b")]);
    for names in [NameMode::Prefix, NameMode::Conflict, NameMode::None] {
        let view = View::of(&[Part { names, ..part("s", &rules, &tools) }], &ToolRules::default());
        let shown = names_of(&view);
        assert_eq!(shown.len(), 2, "{names:?}");
        let owns: Vec<_> = shown.iter().map(|name| view.tool(name).unwrap().own.as_str()).collect();
        assert_eq!(owns, ["a.b", "a/b"], "{names:?}");
    }
}

#[test]
fn names_do_not_depend_on_what_other_servers_have() {
    let (rules, long) = (ToolRules::default(), "x".repeat(80));
    let (one, other) = (catalogue(vec![tool(&long)]), catalogue(vec![tool("y")]));
    let alone = names_of(&View::of(&[part("s", &rules, &one)], &ToolRules::default()));
    let together =
        names_of(&View::of(&[part("t", &rules, &other), part("s", &rules, &one)], &ToolRules::default()));
    assert_eq!(alone[0], together[1]);
}

#[test]
fn an_alias_that_another_server_has_too_is_resolved_by_the_mode_of_names() {
    let aliased =
        ToolRules { aliases: BTreeMap::from([("x".to_owned(), "go".to_owned())]), ..ToolRules::default() };
    let tools = catalogue(vec![tool("x")]);
    let names = |names| {
        let with = |name| Part { names, ..part(name, &aliased, &tools) };
        names_of(&View::of(&[with("a"), with("b")], &ToolRules::default()))
    };
    assert_eq!(names(NameMode::Conflict), ["a_x", "b_x"]);
    assert_eq!(names(NameMode::None), ["go"]);
    let prefixed = names(NameMode::Prefix);
    assert!(prefixed[0] == "go" && prefixed[1].starts_with("go_"), "{prefixed:?}");
}

#[test]
fn the_tools_that_are_shown_are_reported_with_their_server() {
    let (rules, tools) = (ToolRules::default(), catalogue(vec![tool("x")]));
    let hidden = Part { is_shown: false, ..part("a", &rules, &tools) };
    let view = View::of(&[hidden, part("b", &rules, &tools)], &ToolRules::default());
    assert_eq!(view.shown_tools(), [("b_x".to_owned(), 1)]);
}

#[test]
fn a_note_of_the_server_replaces_a_meta_that_is_none() {
    let rules = ToolRules::default();
    let item = json!({"name": "x", "inputSchema": {"type": "object"}, "_meta": "m"});
    let tools = catalogue(vec![listed("x", &item)]);
    let view = View::of(&[part("s", &rules, &tools)], &ToolRules::default());
    assert_eq!(page_of(&view, List::Tools)["tools"][0]["_meta"], json!({SERVER_KEY: "s", OWN_NAME_KEY: "x"}));
}

#[test]
fn a_template_that_several_servers_have_is_of_the_first() {
    let (rules, both) = (ToolRules::default(), templates(&["memo://{x}"]));
    let view = View::of(&[part("a", &rules, &both), part("b", &rules, &both)], &ToolRules::default());
    assert_eq!(page_of(&view, List::Templates)["resourceTemplates"].as_array().unwrap().len(), 1);
    assert_eq!(view.member_for_uri("memo://1"), Some(0));
}

#[test]
fn templates_that_are_not_shown_still_lead_to_their_server() {
    let (rules, server) = (ToolRules::default(), templates(&["memo://{x}"]));
    let view = View::of(&[Part { is_shown: false, ..part("a", &rules, &server) }], &ToolRules::default());
    assert_eq!(page_of(&view, List::Templates)["resourceTemplates"], json!([]));
    assert_eq!(view.member_for_uri("memo://1"), Some(0));
}

#[test]
fn a_template_without_a_fixed_beginning_makes_no_uris() {
    let (rules, server) = (ToolRules::default(), templates(&["{scheme}://x"]));
    let view = View::of(&[part("a", &rules, &server)], &ToolRules::default());
    assert_eq!(view.member_for_uri("memo://x"), None);
    assert_eq!(view.member_for_uri("{scheme}://x"), Some(0), "the template itself");
}

#[test]
fn of_templates_with_equal_beginnings_the_first_is_taken() {
    let (rules, one, other) = (ToolRules::default(), templates(&["m://{x}"]), templates(&["m://{y}"]));
    let view = View::of(&[part("a", &rules, &one), part("b", &rules, &other)], &ToolRules::default());
    assert_eq!(view.member_for_uri("m://1"), Some(0));
}

#[test]
fn views_differ_in_the_lists_that_look_different() {
    let rules = ToolRules::default();
    let of = |server: &Arc<Catalogue>| View::of(&[part("s", &rules, server)], &ToolRules::default());
    let differences = |one: &View, other: &View| one.differences(other).collect::<Vec<_>>();
    let (empty, tools) = (of(&catalogue(vec![])), of(&catalogue(vec![tool("x")])));
    assert_eq!(differences(&empty, &tools), [List::Tools]);
    assert_eq!(differences(&tools, &of(&prompts(&["x"]))), [List::Tools, List::Prompts]);
    assert_eq!(differences(&empty, &of(&templates(&["m://{x}"]))), [List::Templates]);
    assert!(differences(&tools, &of(&catalogue(vec![tool("x")]))).is_empty());
}

#[test]
fn what_is_shown_and_what_is_not_are_different_views() {
    let (rules, tools) = (ToolRules::default(), catalogue(vec![tool("x")]));
    let views = Views::default();
    let shown = views.get(&[part("s", &rules, &tools)], &ToolRules::default());
    let hidden = views.get(&[Part { is_shown: false, ..part("s", &rules, &tools) }], &ToolRules::default());
    let unknown = views.get(&[Part { catalogue: None, ..part("s", &rules, &tools) }], &ToolRules::default());
    assert!(!Arc::ptr_eq(&shown, &hidden) && !Arc::ptr_eq(&hidden, &unknown));
}

#[test]
fn views_that_no_session_sees_are_not_kept() {
    let rules = ToolRules::default();
    let views = Views::default();
    for number in 0..MAX_VIEWS * 2 {
        views.get(&[part("s", &rules, &catalogue(vec![tool(&number.to_string())]))], &ToolRules::default());
    }
    assert!(views.0.lock().len() <= 1);
    let tools = catalogue(vec![tool("x")]);
    let seen: Vec<_> = (0..=MAX_VIEWS)
        .map(|number| {
            views
                .get(&[part("s", &rules, &catalogue(vec![tool(&number.to_string())]))], &ToolRules::default())
        })
        .collect();
    assert_eq!(views.0.lock().len(), MAX_VIEWS);
    let parts = [part("s", &rules, &tools)];
    assert!(
        !Arc::ptr_eq(&views.get(&parts, &ToolRules::default()), &views.get(&parts, &ToolRules::default())),
        "there is no room for another"
    );
    drop(seen);
    let first = views.get(&parts, &ToolRules::default());
    assert!(Arc::ptr_eq(&first, &views.get(&parts, &ToolRules::default())));
}

#[test]
fn a_principal_sees_and_calls_only_the_tools_that_it_is_granted() {
    let rules = ToolRules::default();
    let tools = catalogue(vec![tool("read"), tool("delete")]);
    let parts = [part("s", &rules, &tools)];
    let granted = |allow: &[&str], deny: &[&str]| {
        let own = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        ToolRules { allow: own(allow), deny: own(deny), ..ToolRules::default() }
    };
    let all = View::of(&parts, &rules);
    assert!(all.tool("s_delete").is_some(), "the control");
    for limited in [granted(&[], &["*_delete"]), granted(&["s_read"], &[])] {
        let view = View::of(&parts, &limited);
        assert_eq!(names_of(&view), ["s_read"]);
        assert!(view.tool("s_delete").is_none() && view.tool("s_read").is_some());
        let views = Views::default();
        assert!(!Arc::ptr_eq(&views.get(&parts, &limited), &views.get(&parts, &rules)), "never shared");
    }
}
