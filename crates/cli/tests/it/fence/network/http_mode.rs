//! `--net http` with two hosts in network namespaces: the far host answers on public, private and metadata
//! addresses, so only the fence can tell them apart. The machine itself needs no network.

use std::path::PathBuf;
use std::process::Stdio;

use testkit::node_binary;
use tokio::process::Command;

use super::{Outcomes, PROBE};
use crate::fence::programs::fenced_run::{Ended, FencedRun};

pub(super) const FAR_HOST: &str = include_str!("far_host.py");
/// `/etc/hosts` of the near host; `far_host.py` gives the far host its addresses.
pub(super) const HOSTS: &str = "127.0.0.1 localhost
203.0.112.80 public.example also-public.example
203.0.113.80 documentation.example
192.168.77.80 private.example
127.0.0.1 loopback.example
169.254.169.254 metadata.example
203.0.112.80 rebinding.example
127.0.0.1 rebinding.example
";

/// A fence on the near host, which is connected to the far host and nothing else.
struct Network {
    run: FencedRun,
}

impl Network {
    async fn new() -> Self {
        let [_, run] = FencedRun::in_each_tier().await;
        for (name, text) in [("far_host.py", FAR_HOST), ("hosts", HOSTS)] {
            std::fs::write(run.ground.programs().join(name), text).unwrap();
        }
        run.write_in_scope("probe.py", PROBE);
        Self { run }
    }

    fn log(&self) -> PathBuf {
        self.run.ground.outside().join("requests")
    }

    /// Runs a command on the near host.
    async fn on_near_host(&self, inner: Command) -> Ended {
        let programs = self.run.ground.programs();
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["python3".into(), programs.join("far_host.py"), programs.join("hosts"), self.log()]);
        command.arg(inner.as_std().get_program()).args(inner.as_std().get_args());
        for (name, value) in inner.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.current_dir(self.run.ground.scope()).kill_on_drop(true).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.run.finish(command).await
    }

    /// Runs a command in a fence on the near host.
    async fn fenced(&self, options: &[&str], command: &[&str]) -> Ended {
        let options = [&["--net", "http", "--report", "--json"], options].concat();
        self.on_near_host(self.run.command(&options, command)).await
    }

    /// Runs the probes in a fence and returns their outcomes.
    async fn probe(&self, options: &[&str], probes: &[&str]) -> Outcomes {
        Outcomes::read(self.fenced(options, &[&["python3", "probe.py"], probes].concat()).await.succeeded())
    }

    /// The requests that reached a server on either host: address, port and path.
    fn requests(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fence_every_address_answers() {
    let network = Network::new().await;
    let hosts = [
        "203.0.112.80",
        "203.0.113.80",
        "192.168.77.80",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.2.1",
        "127.0.0.1",
        "public.example:22",
        "public.example:25",
        "loopback.example:443",
        "metadata.example:8080",
    ];
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*"]);
    curl.args(hosts.map(|host| format!("http://{host}/")));
    let ended = network.on_near_host(curl).await.succeeded();
    assert_eq!(network.requests().len(), hosts.len(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn public_hosts_answer_through_the_proxy() {
    let network = Network::new().await;
    let node = node_binary();
    let script = format!(
        "set -e
        curl --silent --fail http://203.0.112.80/curl; echo
        curl --silent --fail http://public.example/curl-name; echo
        curl --silent --fail --data-binary @probe.py http://public.example/ || echo refused by the server
        curl --silent --fail --proxytunnel http://public.example:443/curl-tunnel; echo
        python3 -c 'from urllib.request import urlopen; print(urlopen(\"http://public.example/python\").read().decode())'
        '{}' -e 'require(\"http\").get(\"http://public.example/node\", (answer) => answer.pipe(process.stdout))'",
        node.display()
    );
    let readable = ["--read", node.to_str().unwrap()];
    let ended = network.fenced(&readable, &["sh", "-c", &script]).await.succeeded();
    ended.assert_stdout(
        "far 203.0.112.80 /curl
far 203.0.112.80 /curl-name
refused by the server
far 203.0.112.80 /curl-tunnel
far 203.0.112.80 /python
far 203.0.112.80 /node",
    );
    assert_eq!(
        ended.report()["network"],
        "http: HTTP and HTTPS through the proxy to any public host; programs that ignore the proxy reach nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn public_hosts_answer_over_ipv6() {
    let network = Network::new().await;
    let url = "http://[2606:4700::80]/";
    let ended = network.fenced(&[], &["curl", "--silent", "--show-error", "--fail", url]).await.succeeded();
    ended.assert_stdout("far 2606:4700::80 /");
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_ports_that_are_not_for_the_public_are_refused() {
    let network = Network::new().await;
    let forbidden_hosts = [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "localhost",
        "LOCALHOST.",
        "sub.localhost",
        "loopback.example",
        "rebinding.example",
        "192.0.2.1",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "metadata.example",
        "168.63.129.16",
        "192.168.77.80",
        "private.example",
        "203.0.113.80",
        "documentation.example",
    ];
    let mut probes: Vec<String> = forbidden_hosts
        .iter()
        .flat_map(|host| [format!("proxy:GET http://{host}/"), format!("proxy:CONNECT {host}:443")])
        .collect();
    for port in [22, 25, 8080] {
        probes.push(format!("proxy:CONNECT public.example:{port}"));
        probes.push(format!("proxy:GET http://public.example:{port}/"));
    }
    let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
    let outcomes = network.probe(&[], &probes).await;
    for probe in probes {
        outcomes.assert(probe, "403");
    }
    assert_eq!(network.requests(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_proxy_nothing_is_reached() {
    let network = Network::new().await;
    let probes = ["tcp:203.0.112.80:80", "tcp:192.0.2.1:80", "udp:203.0.112.80:443", "tcp:2606:4700::80:80"];
    let outcomes = network.probe(&[], &[&probes[..], &["tcp:127.0.0.1:80", "pair"]].concat()).await;
    for probe in probes {
        outcomes.assert(probe, "ENETUNREACH");
    }
    outcomes.assert("tcp:127.0.0.1:80", "ECONNREFUSED");
    outcomes.assert("pair", "through the pair");
    assert_eq!(network.requests(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_have_addresses_if_the_proxy_would_dial_them() {
    let network = Network::new().await;
    let probes = [
        ("dns:public.example", "code 0 203.0.112.80"),
        ("dns:loopback.example", "code 3"),
        ("dns:metadata.example", "code 3"),
        ("dns:private.example", "code 3"),
        ("dns:rebinding.example", "code 3"),
        ("dns:localhost", "code 3"),
    ];
    let outcomes = network.probe(&[], &probes.map(|(probe, _)| probe)).await;
    for (probe, expected) in probes {
        outcomes.assert(probe, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allow_list_is_all_that_can_be_reached() {
    let network = Network::new().await;
    let options = ["--allow-host", "private.example", "--allow-host", "203.0.113.80"];
    let options = [&options[..], &["--allow-host", "public.example", "--allow-host", "localhost"]].concat();
    let probes = [
        ("proxy:GET http://public.example/1", "200"),
        // Hosts that are not public can be reached if the list names them.
        ("proxy:GET http://private.example/2", "200"),
        ("proxy:GET http://203.0.113.80/3", "200"),
        ("proxy:GET http://also-public.example/4", "403"),
        ("proxy:GET http://203.0.112.80/5", "403"),
        ("proxy:GET http://192.168.77.80/6", "403"),
        ("proxy:GET http://documentation.example/7", "403"),
        // The near host's own loopback is refused even if the list names it.
        ("proxy:GET http://localhost/8", "403"),
        ("dns:public.example", "code 0 203.0.112.80"),
        ("dns:private.example", "code 0 192.168.77.80"),
        ("dns:also-public.example", "code 3"),
    ];
    let outcomes = network.probe(&options, &probes.map(|(probe, _)| probe)).await;
    for (probe, expected) in probes {
        outcomes.assert(probe, expected);
    }
    assert_eq!(network.requests(), ["203.0.112.80 80 /1", "192.168.77.80 80 /2", "203.0.113.80 80 /3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_covers_public_names_below_it() {
    let network = Network::new().await;
    let probes = [
        ("proxy:GET http://public.example/1", "200"),
        ("proxy:GET http://private.example/2", "403"),
        ("proxy:GET http://203.0.112.80/3", "403"),
    ];
    let outcomes = network.probe(&["--allow-host", "*.example"], &probes.map(|(probe, _)| probe)).await;
    for (probe, expected) in probes {
        outcomes.assert(probe, expected);
    }
}
