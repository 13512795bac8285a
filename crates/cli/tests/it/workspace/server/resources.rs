//! Files as MCP resources: listed in pages and read, with completion of their paths.

use serde_json::{Value, json};
use testkit::Project;

use super::Desk;

fn uris(page: &Value) -> Vec<String> {
    let resources = page["result"]["resources"].as_array().unwrap_or_else(|| panic!("{page}"));
    resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn all_files_are_listed_once_over_several_pages() {
    let project = Project::new("pages");
    let mut expected = Vec::new();
    for number in 0..1203 {
        let name = format!("d{}/f{number:04}.txt", number % 7);
        project.write(&name, "x");
        expected.push(project.uri(&name));
    }
    project.write("ignored/x.txt", "x");
    project.write(".gitignore", "ignored/\n");
    expected.sort();
    let desk = Desk::open(project).await;
    let (mut listed, mut cursor, mut pages) = (Vec::new(), None::<Value>, 0);
    loop {
        let params = cursor.take().map(|cursor| json!({"cursor": cursor}));
        let page = desk.client.request("resources/list", params).await;
        let found = uris(&page);
        assert!(found.len() <= 500, "{}", found.len());
        listed.extend(found);
        pages += 1;
        match page["result"].get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(listed, expected, "in order, each once");
    let answer = desk.client.request("resources/list", Some(json!({"cursor": "!"}))).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_file_is_read_as_text_or_as_a_blob() {
    let project = Project::new("read");
    project.write("a b.txt", "grün\n");
    project.write("dot.png", b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\0\x01");
    let desk = Desk::open(project).await;
    let listed = uris(&desk.client.request("resources/list", None).await);
    let read = async |uri: &str| desk.client.request("resources/read", Some(json!({"uri": uri}))).await;
    for uri in &listed {
        let answer = read(uri).await;
        assert_eq!(answer["result"]["contents"][0]["uri"], *uri, "{answer}");
    }
    let text = read(&desk.project.uri("a%20b.txt")).await;
    assert_eq!(text["result"]["contents"][0]["text"], "grün\n");
    assert_eq!(text["result"]["contents"][0]["mimeType"], "text/plain");
    let blob = read(&desk.project.uri("dot.png")).await;
    assert_eq!(blob["result"]["contents"][0]["blob"], "iVBORw0KGgoAAAANSUhEUgAAAAE=");
    assert_eq!(blob["result"]["contents"][0]["mimeType"], "image/png");
}

#[tokio::test]
async fn what_is_missing_or_outside_is_refused_with_its_own_code() {
    let project = Project::new("refused");
    project.write("a.txt", "inside\n");
    let outside = Project::new("outside");
    outside.write("a.txt", "outside\n");
    let desk = Desk::open(project).await;
    std::os::unix::fs::symlink(outside.join("a.txt"), desk.project.join("link")).unwrap();
    let read = async |uri: &str| desk.client.request("resources/read", Some(json!({"uri": uri}))).await;
    for (uri, code, reason) in [
        (desk.project.uri("missing.txt"), -32002, Some("not_found")),
        (outside.uri("a.txt"), -32602, Some("outside_workspace")),
        (desk.project.uri("link"), -32602, Some("outside_workspace")),
        (desk.project.uri("../a.txt"), -32602, Some("bad_path")),
        ("file:///etc/passwd".to_owned(), -32602, Some("outside_workspace")),
        ("https://example.com/a.txt".to_owned(), -32602, None),
    ] {
        let answer = read(&uri).await;
        assert_eq!(answer["error"]["code"], code, "{uri}: {answer}");
        assert_eq!(answer["error"]["data"]["code"].as_str(), reason, "{uri}: {answer}");
        assert!(!answer.to_string().contains("outside\\n"), "{answer}");
    }
    assert_eq!(read(&desk.project.uri("a.txt")).await["result"]["contents"][0]["text"], "inside\n");
}

#[tokio::test]
async fn one_template_names_every_file() {
    let desk = Desk::empty().await;
    let answer = desk.client.request("resources/templates/list", None).await;
    let templates = answer["result"]["resourceTemplates"].as_array().unwrap();
    assert_eq!(templates.len(), 1);
    assert_eq!(templates[0]["uriTemplate"], desk.project.uri("{+path}"));
}

#[tokio::test]
async fn paths_are_completed() {
    let project = Project::new("complete");
    for name in ["src/main.rs", "src/map.rs", "src/.hidden", "srx", "README.md"] {
        project.write(name, "x");
    }
    let desk = Desk::open(project).await;
    let complete = async |name: &str, value: &str| {
        let reference = json!({"type": "ref/resource", "uri": desk.project.uri("{+path}")});
        let params = json!({"ref": reference, "argument": {"name": name, "value": value}});
        let answer = desk.client.request("completion/complete", Some(params)).await;
        answer["result"]["completion"].clone()
    };
    assert_eq!(complete("path", "sr").await["values"], json!(["src/", "srx"]));
    assert_eq!(complete("path", "src/ma").await["values"], json!(["src/main.rs", "src/map.rs"]));
    assert_eq!(complete("path", "src/").await["values"], json!(["src/main.rs", "src/map.rs"]));
    assert_eq!(complete("path", "src/.h").await["values"], json!(["src/.hidden"]));
    for nothing in ["missing/x", "/etc/pas", "../"] {
        assert_eq!(complete("path", nothing).await["values"], json!([]), "{nothing}");
    }
    assert_eq!(complete("other", "sr").await["values"], json!([]));
    for number in 0..150 {
        desk.project.write(&format!("many/f{number:03}"), "");
    }
    let many = complete("path", "many/").await;
    assert_eq!(many["values"].as_array().unwrap().len(), 100);
    assert_eq!((&many["total"], &many["hasMore"]), (&json!(150), &json!(true)));
}
