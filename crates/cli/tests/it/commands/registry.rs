//! A registry of npm, an index of Python packages, a proxy of Go modules, a repository of Maven and git repositories on
//! loopback. Tests make and replace what they contain.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};
use testkit::{WorkspaceDir, python_binary, workspace_dir};

/// An MCP server with one tool, which reads the version from the package's own files, anew for each call.
const SERVER: &str = r#"#!/usr/bin/env node
const version = () => JSON.parse(require("fs").readFileSync(__dirname + "/package.json")).version;
if (process.argv[2] === "version") { console.log(version()); process.exit(); }
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) return;
    const greeting = () => ({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "greeter", version: version() },
    });
    const tools = () => ({ tools: [{ name: "version", inputSchema: { type: "object" } }] });
    const call = () => ({ content: [{ type: "text", text: version() }] });
    const result = { initialize: greeting, "tools/list": tools, "tools/call": call }[method]();
    console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});
"#;

/// What a package of npm contains beside its server.
#[derive(Default)]
pub(crate) struct NpmContents<'a> {
    pub(crate) dependencies: &'a [(&'a str, &'a str)],
    /// The shell script that runs after the installation.
    pub(crate) postinstall: Option<&'a str>,
    /// Makes the archive differ from others of the same version.
    pub(crate) text: &'a str,
}

type Answers = BTreeMap<String, Vec<u8>>;

pub(crate) struct Registry {
    directory: WorkspaceDir,
    address: String,
    /// What is answered, by path.
    answers: Arc<Mutex<Answers>>,
    /// Whether requests wait.
    is_held: Arc<(Mutex<bool>, Condvar)>,
    is_closed: Arc<Mutex<bool>>,
    /// What npm is told about each package.
    listings: Mutex<BTreeMap<String, Value>>,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let answers: Arc<Mutex<Answers>> = Arc::default();
        let shared = Arc::clone(&answers);
        let is_held: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let held = Arc::clone(&is_held);
        let is_closed: Arc<Mutex<bool>> = Arc::default();
        let closed = Arc::clone(&is_closed);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if *closed.lock().unwrap() {
                    break;
                }
                drop(held.1.wait_while(held.0.lock().unwrap(), |is_held| *is_held).unwrap());
                answer(&connection.unwrap(), &shared.lock().unwrap());
            }
        });
        let directory = workspace_dir("registry");
        Self { directory, address, answers, is_held, is_closed, listings: Mutex::default() }
    }

    /// Lets requests wait for an answer until [`Self::release`].
    pub(crate) fn hold(&self) {
        *self.is_held.0.lock().unwrap() = true;
    }

    pub(crate) fn release(&self) {
        *self.is_held.0.lock().unwrap() = false;
        self.is_held.1.notify_all();
    }

    pub(crate) fn npm_url(&self) -> String {
        format!("{}/npm/", self.address)
    }

    pub(crate) fn python_url(&self) -> String {
        format!("{}/simple/", self.address)
    }

    pub(crate) fn go_url(&self) -> String {
        format!("{}/go", self.address)
    }

    pub(crate) fn maven_url(&self) -> String {
        format!("{}/maven", self.address)
    }

    /// Refuses all connections from now on.
    pub(crate) fn close(&self) {
        *self.is_closed.lock().unwrap() = true;
        // The thread waits for a connection; once it has seen this one, the listener is gone.
        while TcpStream::connect(self.address.trim_start_matches("http://")).is_ok() {}
    }

    /// Forgets all archives of Python packages. What it says about them stays.
    pub(crate) fn forget_python_files(&self) {
        self.answers.lock().unwrap().retain(|path, _| !path.starts_with("/files/"));
    }

    /// Publishes a version, which becomes the latest, or replaces it. Returns its hash.
    pub(crate) fn publish(&self, name: &str, version: &str, contents: &NpmContents<'_>) -> String {
        let package = self.directory.join("package");
        let _ = std::fs::remove_dir_all(&package);
        std::fs::create_dir(&package).unwrap();
        let dependencies: BTreeMap<_, _> = contents.dependencies.iter().copied().collect();
        let mut description =
            json!({"name": name, "version": version, "bin": "server.js", "dependencies": dependencies});
        if let Some(script) = contents.postinstall {
            description["scripts"] = json!({"postinstall": "sh postinstall.sh"});
            std::fs::write(package.join("postinstall.sh"), script).unwrap();
        }
        std::fs::write(package.join("package.json"), description.to_string()).unwrap();
        std::fs::write(package.join("server.js"), SERVER).unwrap();
        std::fs::write(package.join("text"), contents.text).unwrap();
        let archive = self.packed("package");
        let integrity = format!("sha512-{}", BASE64_STANDARD.encode(Sha512::digest(&archive)));
        let path = format!("/npm/{name}/-/{name}-{version}.tgz");
        description["dist"] = json!({"tarball": format!("{}{path}", self.address), "integrity": integrity});
        description["hasInstallScript"] = contents.postinstall.is_some().into();
        let mut listings = self.listings.lock().unwrap();
        let listing =
            listings.entry(name.to_owned()).or_insert_with(|| json!({"name": name, "versions": {}}));
        listing["dist-tags"] = json!({"latest": version});
        listing["versions"][version] = description;
        self.set(&format!("/npm/{name}"), listing.to_string());
        self.set(&path, archive);
        integrity
    }

    /// Packs a directory of this registry with `tar`.
    fn packed(&self, name: &str) -> Vec<u8> {
        let archive = self.directory.join("packed.tgz");
        let mut tar = Command::new("tar");
        let status = tar.arg("-czf").arg(&archive).arg("-C").arg(self.directory.path()).arg(name).status();
        assert!(status.unwrap().success());
        std::fs::read(archive).unwrap()
    }

    /// The archive of a version.
    pub(crate) fn archive(&self, name: &str, version: &str) -> Vec<u8> {
        self.answers.lock().unwrap()[&format!("/npm/{name}/-/{name}-{version}.tgz")].clone()
    }

    /// Replaces the archive of a version, and nothing that is said about it.
    pub(crate) fn set_archive(&self, name: &str, version: &str, archive: Vec<u8>) {
        self.set(&format!("/npm/{name}/-/{name}-{version}.tgz"), archive);
    }

    /// Publishes a git repository with a package that is prepared by a script. Returns its address.
    pub(crate) fn publish_repository(&self, name: &str, prepare: &str) -> String {
        let work = self.directory.join(name);
        std::fs::create_dir(&work).unwrap();
        let description = json!({"name": name, "version": "1.0.0", "scripts": {"prepare": prepare}});
        std::fs::write(work.join("package.json"), description.to_string()).unwrap();
        format!("git+{}", self.publish_git(name, &work))
    }

    /// Publishes a git repository with a hook of pre-commit that prints `text`, under the tag `v1`. Returns its address.
    pub(crate) fn publish_hook(&self, name: &str, text: &str) -> String {
        self.publish_sources(name, "1.0.0", text, Path::new("/dev/null"));
        let packed = format!("{name}-1.0.0.tar.gz");
        let unpacked =
            Command::new("tar").arg("-xzf").arg(packed).current_dir(self.directory.path()).output();
        assert!(unpacked.unwrap().status.success());
        let work = self.directory.join(format!("{name}-1.0.0"));
        let hook = json!([{"id": name, "name": name, "entry": name, "language": "python", "verbose": true,
                           "always_run": true, "pass_filenames": false}]);
        std::fs::write(work.join(".pre-commit-hooks.yaml"), hook.to_string()).unwrap();
        self.publish_git(name, &work)
    }

    /// Makes a directory a git repository and publishes it. Returns its address.
    fn publish_git(&self, name: &str, work: &Path) -> String {
        let git = |words: &[&str]| {
            let identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
            let output = Command::new("git").args(identity).args(words).current_dir(work).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "first"]);
        git(&["tag", "v1"]);
        // So that files alone can serve it.
        git(&["update-server-info"]);
        self.publish_files(&work.join(".git"), &format!("/{name}.git"));
        format!("{}/{name}.git", self.address)
    }

    fn publish_files(&self, directory: &Path, path: &str) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                self.publish_files(&entry.path(), &path);
            } else {
                self.set(&path, std::fs::read(entry.path()).unwrap());
            }
        }
    }

    /// Publishes a wheel, or replaces it. Its program prints `text`. Returns its hash.
    pub(crate) fn publish_wheel(&self, name: &str, version: &str, text: &str) -> String {
        self.publish_python("wheel", name, version, text, Path::new("/dev/null"))
    }

    /// Publishes sources, whose build writes `outside`. Its program prints `text`.
    pub(crate) fn publish_sources(&self, name: &str, version: &str, text: &str, outside: &Path) -> String {
        self.publish_python("sources", name, version, text, outside)
    }

    fn publish_python(&self, kind: &str, name: &str, version: &str, text: &str, outside: &Path) -> String {
        let mut python = Command::new(python_binary());
        python.args(["-c", include_str!("python_archives.py"), kind, name, version, text]).arg(outside);
        let output = python.current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let file = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let archive = std::fs::read(self.directory.join(&file)).unwrap();
        let digest = Sha256::digest(&archive);
        let hash = wire::hex(&digest);
        self.set(&format!("/files/{file}"), archive);
        let link = format!("<a href=\"/files/{file}#sha256={hash}\">{file}</a>");
        let path = format!("/simple/{name}/");
        let before = self.answers.lock().unwrap().get(&path).cloned().unwrap_or_default();
        let before = String::from_utf8(before).unwrap();
        let others = before.lines().filter(|line| !line.contains(&format!(">{file}<")));
        let listing: String = others.chain([link.as_str()]).flat_map(|line| [line, "\n"]).collect();
        self.set(&path, listing);
        format!("sha256:{hash}")
    }

    /// Publishes a Go module with a function that returns `text`. Packed by the Python of the parts, which has zip.
    pub(crate) fn publish_go_module(&self, module: &str, version: &str, text: &str) {
        let at = format!("{module}@{version}");
        let package = module.rsplit('/').next().unwrap();
        let description = format!("module {module}\n\ngo 1.21\n");
        let source = format!("package {package}\n\nfunc Text() string {{ return {text:?} }}\n");
        let files = [(format!("{at}/go.mod"), description.clone()), (format!("{at}/text.go"), source)];
        let place = format!("/go/{module}/@v/{version}");
        self.set(&format!("{place}.info"), json!({"Version": version}).to_string());
        self.set(&format!("{place}.mod"), description);
        self.set(&format!("{place}.zip"), self.zipped(&files));
    }

    /// Publishes an artifact of Maven: a description alone, or with a jar without classes.
    pub(crate) fn publish_maven(&self, group: &str, name: &str, version: &str, packaging: &str) {
        let place = format!("/maven/{}/{name}/{version}/{name}-{version}", group.replace('.', "/"));
        let description = format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version><packaging>{packaging}</packaging></project>"
        );
        self.set(&format!("{place}.pom"), description);
        if packaging == "jar" {
            let manifest = ("META-INF/MANIFEST.MF".to_owned(), "Manifest-Version: 1.0\n".to_owned());
            self.set(&format!("{place}.jar"), self.zipped(&[manifest]));
        }
    }

    fn zipped(&self, files: &[(String, String)]) -> Vec<u8> {
        let script = "import json, sys, zipfile\n\
                      with zipfile.ZipFile('packed.zip', 'w') as archive:\n\
                      \x20   for name, text in json.loads(sys.argv[1]): archive.writestr(name, text)";
        let mut python = Command::new(python_binary());
        python.args(["-c", script]).arg(json!(files).to_string()).current_dir(self.directory.path());
        let output = python.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::read(self.directory.join("packed.zip")).unwrap()
    }

    fn set(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.answers.lock().unwrap().insert(path.to_owned(), body.into());
    }
}

fn answer(mut connection: &TcpStream, answers: &Answers) {
    let mut lines = BufReader::new(connection).lines();
    let Some(Ok(head)) = lines.next() else { return };
    // Read the rest of the request: a connection that is closed before is reset.
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let (status, body) = match answers.get(path) {
        Some(body) => ("200 OK", &body[..]),
        None => ("404 Not Found", &b"{}"[..]),
    };
    let kind = if path.starts_with("/simple/") { "text/html" } else { "application/json" };
    // As the public index does, or pip would keep none. Pip measures the age from the date, so one to come is fresh.
    let kept = "cache-control: max-age=86400\r\ndate: Fri, 01 Jan 2100 00:00:00 GMT\r\n";
    let caching = if path.starts_with("/files/") { kept } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{caching}content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let body = if method == "HEAD" { &[] } else { body };
    // The client may have closed the connection.
    let _ = connection.write_all(&[head.as_bytes(), body].concat());
}
