//! Servers that drive a browser, with the options that the documentation names for them, and Debian's Chromium.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{
    Gateway, NEWEST, Project, RawClient, WorkspaceDir, node_binary, parts_dir, ringfence_binary,
    workspace_dir,
};

use crate::fence::programs::fenced_run::npm_registry;

/// What `docs/servers.md` says that a browser needs.
const BROWSER: [&str; 3] = ["--net", "http", "--unix-sockets"];
const STARTS: usize = 3;
const PAGE: &str = "data:text/html,<title>six</title><script>document.title += 6 * 7</script>";

/// The browser, and where its libraries are if it was unpacked and not installed.
fn chromium() -> (PathBuf, Option<String>) {
    let installed = Path::new("/usr/lib/chromium/chromium");
    if installed.is_file() {
        return (installed.to_owned(), None);
    }
    let system = parts_dir().join("chromium/usr/lib");
    let libraries = std::fs::read_dir(&system).expect("the part chromium is unpacked");
    let is_library = |path: &PathBuf| path.is_dir() && path.to_string_lossy().ends_with("-linux-gnu");
    let libraries = libraries.filter_map(|entry| Some(entry.ok()?.path())).find(is_library).unwrap();
    let path = format!("{0}:{0}/pulseaudio", libraries.display());
    (system.join("chromium/chromium"), Some(path))
}

/// The flags that show the parts, and a browser that is unpacked there its libraries.
fn reading_parts(libraries: Option<String>) -> Vec<String> {
    let read = ["--read".to_owned(), parts_dir().display().to_string()];
    let libraries = libraries.map(|path| ["--force-env".to_owned(), format!("LD_LIBRARY_PATH={path}")]);
    read.into_iter().chain(libraries.into_iter().flatten()).collect()
}

/// A session with a server of the parts, whose last argument names the browser.
struct Browser {
    client: RawClient,
    _gateway: Gateway,
    _project: Project,
}

impl Browser {
    async fn open(script: &str, arguments: &[&str], fence: &[&str]) -> Self {
        let project = Project::new("browser");
        let (program, libraries) = chromium();
        let mut flags: Vec<String> = fence.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(reading_parts(libraries));
        let server = parts_dir().join("node_modules").join(script).display().to_string();
        let mut command = vec![node_binary().display().to_string(), server];
        command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        command.push(program.display().to_string());
        let gateway =
            Gateway::builder().command(command).flags(flags).current_dir(&project.path).start().await;
        let mut client = gateway.client();
        client.open(json!({}), NEWEST).await;
        Self { client, _gateway: gateway, _project: project }
    }

    async fn text_of(&self, tool: &str, arguments: Value) -> String {
        let answer = self.client.call_tool(tool, arguments).await;
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Opens the page until the text has what is wanted: the next call starts a browser again that died at its start.
    async fn assert_opens_page(&self, tool: &str, wanted: &[&str]) {
        let mut texts = Vec::new();
        for _ in 0..STARTS {
            let text = self.text_of(tool, json!({"url": PAGE})).await;
            if wanted.iter().all(|part| text.contains(part)) {
                return;
            }
            texts.push(text);
        }
        panic!("inside: {texts:#?}\noutside of a fence: {}", run_outside());
    }
}

/// What the browser says of the page without a fence, which tells the machine's fault from the fence's.
fn run_outside() -> String {
    let (program, libraries) = chromium();
    let mut command = std::process::Command::new(program);
    command.args(["--headless", "--no-sandbox", "--dump-dom", PAGE]);
    command.envs(libraries.map(|path| ("LD_LIBRARY_PATH", path)));
    match command.output() {
        Ok(output) => format!(
            "{}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => error.to_string(),
    }
}

const PLAYWRIGHT_PACKAGE: &str = "@playwright/mcp@0.0.83";
const PLAYWRIGHT: (&str, [&str; 4]) =
    ("@playwright/mcp/cli.js", ["--headless", "--isolated", "--no-sandbox", "--executable-path"]);

#[tokio::test]
async fn playwright_opens_a_page() {
    let (script, arguments) = PLAYWRIGHT;
    let browser = Browser::open(script, &arguments, &BROWSER).await;
    browser.assert_opens_page("browser_navigate", &["six42"]).await;
}

/// Runs ringfence to its end, with caches and a registry of the test.
async fn ringfence_with(site: &WorkspaceDir, arguments: &[&OsStr]) -> String {
    let run = std::process::Command::new(ringfence_binary())
        .args(arguments)
        .env("XDG_CACHE_HOME", site.join("caches"))
        .env("NPM_CONFIG_REGISTRY", npm_registry().await)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

/// Only the arguments that the preset tells the operator to add are added. The package is installed ahead, because a
/// registry of the test's machine may be no public host.
#[tokio::test(flavor = "multi_thread")]
async fn playwright_opens_a_page_with_what_add_writes_for_it() {
    let site = workspace_dir("browser-preset");
    let file = site.join("servers.yaml");
    let (program, libraries) = chromium();
    let libraries = libraries.map(|path| format!("LD_LIBRARY_PATH={path}"));
    let command = ["--", "npx", "-y", PLAYWRIGHT_PACKAGE].into_iter().chain(PLAYWRIGHT.1).map(OsStr::new);
    let command: Vec<&OsStr> = command.chain([program.as_os_str()]).collect();
    ringfence_with(&site, &[&[OsStr::new("cache"), OsStr::new("add")], &command[..]].concat()).await;

    let add = [OsStr::new("add"), OsStr::new("web"), OsStr::new("--config"), file.as_os_str()];
    let variables = libraries.iter().flat_map(|variable| [OsStr::new("--env"), OsStr::new(variable)]);
    let arguments: Vec<&OsStr> = add.into_iter().chain(variables).chain(command).collect();
    let told = ringfence_with(&site, &arguments).await;
    assert!(told.contains("unixSockets: true") && told.contains("--no-sandbox"), "{told}");

    let project = Project::new("browser-preset");
    let gateway = Gateway::without_command()
        .flag("--config")
        .flag(&file)
        .flags(reading_parts(None))
        .env("XDG_CACHE_HOME", site.join("caches"))
        .current_dir(&project.path)
        .start()
        .await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let browser = Browser { client, _gateway: gateway, _project: project };
    browser.assert_opens_page("web_browser_navigate", &["six42"]).await;
}

#[tokio::test]
async fn chrome_devtools_opens_a_page() {
    let script = "chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js";
    let arguments = ["--headless", "--isolated", "--chromeArg=--no-sandbox", "--executablePath"];
    let browser = Browser::open(script, &arguments, &BROWSER).await;
    browser.assert_opens_page("new_page", &["data:text/html", "[selected]"]).await;
}

/// The control: the options are needed.
#[tokio::test]
async fn a_browser_does_not_start_without_unix_sockets() {
    let (script, arguments) = PLAYWRIGHT;
    let browser = Browser::open(script, &arguments, &[]).await;
    let text = browser.text_of("browser_navigate", json!({"url": PAGE})).await;
    assert!(text.contains("Error") && !text.contains("six42"), "{text}");
}
