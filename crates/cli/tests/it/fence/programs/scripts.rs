//! What the first line of a server's script can make readable: nothing that is secret.

use serde_json::json;
use testkit::{Gateway, NEWEST, Project, workspace_dir};

/// Answers every call with the content of a file, or with why it cannot be read.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {}
    if message.get("method") == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif message.get("method") == "tools/call":
        try:
            text = open(message["params"]["arguments"]["path"]).read()
        except OSError as error:
            text = str(error)
        result = {"content": [{"type": "text", "text": text}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// The finding: a script of the workspace names a key as its interpreter, and the key became readable.
#[tokio::test]
async fn a_script_that_names_a_secret_as_its_interpreter_cannot_read_it() {
    let home = workspace_dir("home-with-keys");
    let keys = home.as_ref().canonicalize().unwrap().join(".ssh");
    std::fs::create_dir_all(&keys).unwrap();
    let key = keys.join("id_rsa");
    std::fs::write(&key, "KEY MATERIAL").unwrap();
    let key = key.to_str().unwrap();
    for first in
        [format!("#!{key}"), format!("#!/usr/bin/env {key}"), format!("#!{}/bin/python3", keys.display())]
    {
        for (flags, is_shown) in
            [(&[][..], false), (&["--allow-sensitive-reads", keys.to_str().unwrap()][..], true)]
        {
            let project = Project::new("script-server");
            project.write("tool/server.py", format!("{first}\n{SERVER}"));
            let script = project.join("tool/server.py");
            let mut builder = Gateway::builder().flag("--no-config").env("HOME", home.as_ref()).flags(flags);
            if is_shown {
                builder = builder.flag("--read").flag(&keys);
            }
            let command = ["python3".into(), script.into_os_string()];
            let gateway = builder
                .env_remove("XDG_CACHE_HOME")
                .current_dir(&project.path)
                .command(command)
                .start()
                .await;
            let mut client = gateway.client();
            client.open(json!({}), NEWEST).await;
            let text = client.call_tool_for_text("read", json!({"path": key})).await;
            assert_eq!(text == "KEY MATERIAL", is_shown, "{first}: {text}");
        }
    }
}
