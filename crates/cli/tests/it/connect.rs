//! `ringfence connect`: an IDE with servers on its own machine and others behind a gateway, and what happens when
//! either side breaks, lies or goes away.

mod beside_the_ide;
mod both_kinds;
mod ends;
mod ide;
mod machine;
mod machines;
mod outages;
mod pinned;
pub(crate) mod proxy;
mod recorder;
mod restarts;
mod sharing;
mod tls;
mod tokens;
mod trusted_files;
mod untrusted_gateway;

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, MessageLog, NEWEST, RawClient, WorkspaceDir, fixture_binary, wait_until,
    workspace_dir,
};

use self::ide::{Ide, IdeBuilder};
use self::proxy::Proxy;

/// Far longer than any test, so such a call ends only by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// The files of a test, for the client's machine and the gateway's. The server `remote` runs behind the gateway;
/// `local` and `filesystem` run on the client's machine.
struct Site {
    directory: WorkspaceDir,
}

impl Site {
    fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        for below in ["project", "gateway", "home", "outside"] {
            std::fs::create_dir(directory.join(below)).unwrap();
        }
        let site = Self { directory };
        let fixture = |name: &str| {
            let (log, starts) = (site.log(name), site.directory.join(format!("{name}.starts")));
            let mut command = vec![fixture_binary().into_os_string().into_string().unwrap()];
            command.extend(["--message-log".to_owned(), log.path().to_str().unwrap().to_owned()]);
            command.extend(["--start-log".to_owned(), starts.to_str().unwrap().to_owned()]);
            json!({"command": command, "fence": {"unfenced": true}})
        };
        let mut local = fixture("local");
        local["executionContext"] = "local".into();
        let servers =
            json!({"filesystem": {}, "local": {"executionContext": "local"}, "remote": fixture("remote")});
        site.write("gateway.yaml", &json!({"localExecution": "attachment", "servers": servers}));
        site.write("client.yaml", &json!({"servers": {"filesystem": {}, "local": local}}));
        site
    }

    fn write(&self, name: &str, configuration: &Value) {
        std::fs::write(self.directory.join(name), configuration.to_string()).unwrap();
    }

    /// The messages that servers of that name have read.
    fn log(&self, server: &str) -> MessageLog {
        MessageLog::new(self.directory.join(format!("{server}.messages")))
    }

    /// How often a server of that name was started.
    fn starts(&self, server: &str) -> usize {
        let path = self.directory.join(format!("{server}.starts"));
        std::fs::read_to_string(path).unwrap_or_default().lines().count()
    }

    /// The client's working directory.
    fn project(&self) -> PathBuf {
        self.directory.join("project").canonicalize().unwrap()
    }

    fn gateway(&self) -> GatewayBuilder {
        Gateway::without_command()
            .flag("--config")
            .flag(self.directory.join("gateway.yaml"))
            .env("HOME", self.directory.join("home"))
            .env("XDG_CACHE_HOME", self.directory.join("gateway-caches"))
            .env("XDG_CONFIG_HOME", self.directory.join("home"))
            .current_dir(self.directory.join("gateway"))
    }

    /// An IDE whose ringfence has the servers `local` and `filesystem` and connects to `url`.
    fn ide(&self, url: &str) -> IdeBuilder {
        self.ide_with(url, self.directory.join("client.yaml"))
    }

    /// The same with the servers of another configuration.
    fn ide_with(&self, url: &str, configuration: PathBuf) -> IdeBuilder {
        IdeBuilder::new(url, self.project())
            .flag("--config")
            .flag(configuration)
            .env("HOME", self.directory.join("home"))
            .env("XDG_CACHE_HOME", self.directory.join("client-caches"))
            .env("XDG_CONFIG_HOME", self.directory.join("home"))
            .log(self.directory.join("connect.log"))
    }

    /// The log of the client's ringfence.
    fn connect_log(&self) -> String {
        std::fs::read_to_string(self.directory.join("connect.log")).unwrap_or_default()
    }
}

/// A gateway, an IDE that is attached to it, and a wire between them that can be cut.
struct Connected {
    site: Site,
    gateway: Gateway,
    proxy: Proxy,
    ide: Ide,
}

impl Connected {
    async fn start(name: &str) -> Self {
        let site = Site::new(name);
        let gateway = site.gateway().start().await;
        let proxy = Proxy::start(gateway.url()).await;
        let ide = site.ide(&proxy.url()).open().await;
        let connected = Self { site, gateway, proxy, ide };
        connected.attached().await;
        connected
    }

    /// Waits until the servers of the client's machine can be used through the gateway.
    async fn attached(&self) {
        wait_until("the client's machine is attached", async || {
            let Some(report) = self.report().await else { return false };
            report["attached"] == true
                && shows(&report, "local_echo")
                && shows(&report, "filesystem_read_file")
        })
        .await;
    }

    /// The gateway's report on the session; `None` while there is no session.
    async fn report(&self) -> Option<Value> {
        let id = self.proxy.session_id()?;
        let reply =
            self.gateway.client().get_stream(None).path(&format!("/session/{id}")).send().await.ok()?;
        (reply.status == 200).then(|| reply.json().clone())
    }

    /// Another client of the same session.
    fn colleague(&self) -> RawClient {
        let mut client = self.gateway.client();
        client.set_session(self.proxy.session_id().as_deref(), Some(NEWEST));
        client
    }

    /// Starts another gateway in place of one that is gone.
    async fn replace_gateway(&mut self) {
        self.gateway = self.site.gateway().start().await;
        self.proxy.lead_to(self.gateway.url());
    }
}

/// Whether a session's report lists the tool.
fn shows(report: &Value, tool: &str) -> bool {
    let tools = report["tools"].as_array().into_iter().flatten();
    tools.into_iter().any(|shown| shown == tool || shown["name"] == tool)
}

/// The message of an answer that is an error.
#[track_caller]
fn error_of(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("no error in {answer}"))
}
