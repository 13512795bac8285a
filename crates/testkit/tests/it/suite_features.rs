//! The features that the conformance suite checks, asserted on exact payloads where the suite is lenient.

use serde_json::{Value, json};

use crate::stdio_server::{StdioServer, text_of};

#[tokio::test]
async fn the_simple_text_needs_no_arguments() {
    let mut server = StdioServer::initialized().await;
    let response = server.request("tools/call", json!({"name": "test_simple_text"})).await;
    assert_eq!(text_of(&response["result"]), "This is a simple text response for testing.");
}

#[tokio::test]
async fn content_of_every_type_is_returned() {
    let mut server = StdioServer::initialized().await;
    let image = server.call("test_image_content", json!({})).await;
    assert_eq!(image["content"][0]["mimeType"], "image/png");
    let audio = server.call("test_audio_content", json!({})).await;
    assert_eq!(audio["content"][0]["mimeType"], "audio/wav");
    let embedded = server.call("test_embedded_resource", json!({})).await;
    assert_eq!(embedded["content"][0]["resource"]["uri"], "test://embedded-resource");
    let mixed = server.call("test_multiple_content_types", json!({})).await;
    let types: Vec<&Value> = mixed["content"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(types, ["text", "image", "resource"]);
    let failed = server.call("test_error_handling", json!({})).await;
    assert_eq!(failed["isError"], true);
    assert_eq!(text_of(&failed), "This tool intentionally returns an error for testing");
}

#[tokio::test]
async fn logs_and_progress_come_three_times() {
    let mut server = StdioServer::initialized().await;
    server.send_call("test_tool_with_logging", &json!({})).await;
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        assert_eq!(server.read().await["params"]["data"], text);
    }
    server.read().await;
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": 8}});
    server.send_request("tools/call", params).await;
    for progress in [0, 50, 100] {
        let expected = json!({"progressToken": 8, "progress": progress, "total": 100});
        assert_eq!(server.read().await["params"], expected);
    }
    server.read().await;
}

async fn call_and_answer(tool: &str, arguments: Value, result: Value) -> (Value, String) {
    let mut server = StdioServer::initialized().await;
    server.send_call(tool, &arguments).await;
    let asked = server.read().await;
    server.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).await;
    (asked["params"].clone(), text_of(&server.read().await["result"]))
}

#[tokio::test]
async fn sampling_asks_with_the_prompt() {
    let result = json!({"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"});
    let (params, text) = call_and_answer("test_sampling", json!({"prompt": "well?"}), result).await;
    assert_eq!(params["messages"][0]["content"]["text"], "well?");
    assert_eq!(params["maxTokens"], 100);
    assert_eq!(text, "LLM response: yes");
}

#[tokio::test]
async fn elicitations_ask_with_their_schemas() {
    let accepted = json!({"action": "accept", "content": {"a": 1}});
    let (params, text) =
        call_and_answer("test_elicitation", json!({"message": "who?"}), accepted.clone()).await;
    assert_eq!(params["message"], "who?");
    assert_eq!(params["requestedSchema"]["required"], json!(["username", "email"]));
    assert_eq!(text, r#"User response: action=accept, content={"a":1}"#);
    let (params, _) = call_and_answer("test_elicitation_sep1034_defaults", json!({}), accepted.clone()).await;
    assert_eq!(params["requestedSchema"]["properties"]["score"]["default"], 95.5);
    let (params, text) = call_and_answer("test_elicitation_sep1330_enums", json!({}), accepted).await;
    assert!(params["requestedSchema"]["properties"]["titledMulti"]["items"]["anyOf"].is_array());
    assert_eq!(text, r#"Elicitation completed: action=accept, content={"a":1}"#);
}

#[tokio::test]
async fn a_client_without_the_capability_is_not_asked() {
    let mut server = StdioServer::start([] as [&str; 0]);
    server.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})).await;
    assert_eq!(server.call("test_sampling", json!({"prompt": "?"})).await["isError"], true);
}

#[tokio::test]
async fn resources_are_listed_and_read() {
    let mut server = StdioServer::initialized().await;
    let list = server.request("resources/list", json!({})).await;
    assert_eq!(list["result"]["resources"].as_array().unwrap().len(), 3);
    let templates = server.request("resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "test://template/{id}/data");
    for (uri, field) in [("test://static-text", "text"), ("test://static-binary", "blob")] {
        let read = server.request("resources/read", json!({"uri": uri})).await;
        assert!(read["result"]["contents"][0][field].is_string(), "{read}");
    }
    let filled_in = server.request("resources/read", json!({"uri": "test://template/123/data"})).await;
    assert!(filled_in["result"]["contents"][0]["text"].as_str().unwrap().contains("\"id\":\"123\""));
    let missing = server.request("resources/read", json!({"uri": "test://none"})).await;
    assert_eq!(missing["error"]["code"], -32002);
    assert_eq!(missing["error"]["data"]["uri"], "test://none");
}

#[tokio::test]
async fn prompts_are_listed_filled_in_and_completed() {
    let mut server = StdioServer::initialized().await;
    let list = server.request("prompts/list", json!({})).await;
    assert_eq!(list["result"]["prompts"].as_array().unwrap().len(), 4);
    let arguments = json!({"arg1": "hello", "arg2": "world"});
    let filled = server
        .request("prompts/get", json!({"name": "test_prompt_with_arguments", "arguments": arguments}))
        .await;
    let text = &filled["result"]["messages"][0]["content"]["text"];
    assert_eq!(text, "Prompt with arguments: arg1='hello', arg2='world'");
    let image = server.request("prompts/get", json!({"name": "test_prompt_with_image"})).await;
    assert_eq!(image["result"]["messages"][0]["content"]["type"], "image");
    let completed = server
        .request(
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                "argument": {"name": "arg1", "value": "par"}}),
        )
        .await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["paris", "park", "party"]));
}
