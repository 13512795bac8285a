//! Clients on machines of their own: each has a network namespace, joined to that of the gateways by a cable, and a
//! project directory that only it can see. The tests leave the host's network alone and need no cleanup, because
//! namespaces end with their processes.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, PipedProcess, RawClient, ringfence_binary, text_of, wait_until};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

use super::recorder::Recorder;
use super::tokens::{ALICE, BOB, with_token, write_tokens};
use super::{Ide, Proxy, Site};
use crate::authentication::write_private;

/// The addresses on the gateways' side that clients can reach.
const FIRST: &str = "10.9.0.1";
const SECOND: &str = "10.9.0.2";
const WIRE: &str = "10.9.0.3";

/// The script that sets up a client's machine, its cable and its files, and then executes its command.
const MACHINE: &str = r#"set -e
number=$1 project=$2 owner=$3
shift 3
until ip link show cable >/dev/null 2>&1; do sleep 0.01; done
ip link set lo up
ip address add "10.7.$number.2/24" dev cable
ip link set cable up
ip route add default via "10.7.$number.1"
mount -t tmpfs none "$project"
printf 'a file of %s' "$owner" > "$project/notes.txt"
cd "$project"
exec "$@""#;

/// Runs a test on the gateways' side, in a network namespace that has only their addresses.
fn among_gateways<Test: Future<Output = ()>>(test: impl FnOnce() -> Test + Send + 'static) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c"]);
            let setup = "ip link set lo up; for a in \"$@\"; do ip address add $a/32 dev lo; done; echo '{}'; exec cat";
            let mut network = PipedProcess::start(command.args([setup, "sh", FIRST, SECOND, WIRE]));
            network.read().await;
            let path = format!("/proc/{}/ns/net", network.child.id().unwrap());
            let namespace = std::fs::File::open(path).unwrap();
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            // Affects only this thread, the only one of the runtime.
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).unwrap();
            test().await;
        });
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

async fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().await.unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A machine with an IDE on it.
struct ClientMachine {
    ide: Ide,
    project: PathBuf,
}

impl ClientMachine {
    async fn start(site: &Site, number: u8, owner: &str, url: &str) -> Self {
        let project = site.project();
        let mut wrapper = vec!["unshare", "--net", "--mount", "sh", "-c", MACHINE, "sh"];
        let (number_text, cable) = (number.to_string(), format!("cable{number}"));
        wrapper.extend([&number_text, project.to_str().unwrap(), owner]);
        let token = site.directory.join(format!("{owner}.token"));
        let mut ide = site
            .ide(url)
            .flag("--token-file")
            .flag(token)
            .env("SSL_CERT_FILE", site.directory.join("cert.pem"))
            .env("XDG_CACHE_HOME", site.directory.join(format!("caches-{owner}")))
            .wrapped_in(wrapper)
            .start();
        let pid = ide.pid();
        let network = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).unwrap();
        wait_until("the machine has a network of its own", async || {
            network(&pid.to_string()) != network("thread-self")
        })
        .await;
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "cable", "netns", &pid.to_string()])
            .await;
        ip(&["address", "add", &format!("10.7.{number}.1/24"), "dev", &cable]).await;
        ip(&["link", "set", &cable, "up"]).await;
        ide.initialize().await;
        Self { ide, project }
    }

    /// A file as this machine sees it.
    fn file(&self, name: &str) -> Option<String> {
        let project = self.project.strip_prefix("/").unwrap();
        std::fs::read_to_string(Path::new(&format!("/proc/{}/root", self.ide.pid())).join(project).join(name))
            .ok()
    }
}

/// Writes a certificate for one of the addresses, which the machines trust.
fn trusted_certificate(site: &Site, host: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    write_private(&site.directory.join("cert.pem"), &made.cert.pem());
    made
}

/// The end of TLS on the wire, in front of gateways with `--behind-proxy`.
fn tls(site: &Site) -> TlsAcceptor {
    let made = trusted_certificate(site, WIRE);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    Arc::new(config).into()
}

/// Starts a gateway on an address that the machines can reach, with tokens.
async fn public_gateway(site: &Site, host: &str) -> Gateway {
    let automatic = std::fs::read_to_string(site.directory.join("gateway.yaml")).unwrap();
    let mut configuration: Value = serde_json::from_str(&automatic).unwrap();
    // On an address other than loopback, `auto` means attachments.
    configuration["localExecution"] = "auto".into();
    site.write("gateway.yaml", &configuration);
    let tokens = site.directory.join("tokens");
    site.gateway().host(host).flag("--behind-proxy").flag("--auth-token-file").flag(tokens).start().await
}

/// Another client of the session that was attached last, returned once it sees the files of the client's machine.
async fn colleague(gateway: &Gateway, proxy: &Proxy, token: &str) -> RawClient {
    let mut client = with_token(gateway.client(), token);
    wait_until("the machine is attached", async || {
        let Some(id) = proxy.session_id() else { return false };
        client.set_session(Some(&id), Some(NEWEST));
        let reply = client.post_tool_call(&json!(1), "filesystem_list_dir", json!({})).await;
        reply.status == 200 && reply.answer_text().await.contains("notes.txt")
    })
    .await;
    client
}

#[test]
fn the_files_of_a_client_are_only_on_its_machine() {
    among_gateways(async || {
        let site = Site::new("connect-machine");
        write_tokens(&site);
        let gateway = public_gateway(&site, FIRST).await;
        let proxy = Proxy::start_at(WIRE, gateway.url(), Some(tls(&site))).await;
        let mut alice = ClientMachine::start(&site, 1, "alice", &proxy.url()).await;
        let colleague = colleague(&gateway, &proxy, ALICE).await;
        let read = colleague.call_tool_for_text("filesystem_read_file", json!({"path": "notes.txt"})).await;
        assert!(read.contains("a file of alice"), "{read}");
        let write = json!({"path": "made.txt", "content": "through the gateway"});
        colleague.call_tool_for_text("filesystem_write_file", write).await;
        assert_eq!(alice.file("made.txt").as_deref(), Some("through the gateway"));
        assert!(!site.project().join("made.txt").exists() && !site.project().join("notes.txt").exists());
        alice.ide.call_for_text("filesystem_write_file", json!({"path": "own.txt", "content": "x"})).await;
        assert_eq!(alice.file("own.txt").as_deref(), Some("x"));
        assert!(!site.project().join("own.txt").exists());
        // The control: a server behind the gateway sees the gateway's files, not the client's.
        let theirs = json!({"path": site.project().join("notes.txt")});
        let answer = alice.ide.call("remote_read_file", theirs).await;
        assert!(answer.to_string().contains("No such file"), "{answer}");
        alice.ide.echoes("remote").await;
    });
}

#[test]
fn two_clients_of_two_gateways_have_the_same_paths_and_different_files() {
    among_gateways(async || {
        let site = Site::new("connect-two-gateways");
        write_tokens(&site);
        let gateways = [public_gateway(&site, FIRST).await, public_gateway(&site, SECOND).await];
        let tls = Some(tls(&site));
        let wires = [
            Proxy::start_at(WIRE, gateways[0].url(), tls.clone()).await,
            Proxy::start_at(WIRE, gateways[1].url(), tls).await,
        ];
        two_clients([&gateways[0], &gateways[1]], &wires, &site).await;
    });
}

#[test]
fn two_clients_of_one_gateway_have_the_same_paths_and_different_files() {
    among_gateways(async || {
        let site = Site::new("connect-one-gateway");
        write_tokens(&site);
        let gateway = public_gateway(&site, FIRST).await;
        let tls = Some(tls(&site));
        let wires = [
            Proxy::start_at(WIRE, gateway.url(), tls.clone()).await,
            Proxy::start_at(WIRE, gateway.url(), tls).await,
        ];
        two_clients([&gateway, &gateway], &wires, &site).await;
    });
}

async fn two_clients(gateways: [&Gateway; 2], wires: &[Proxy; 2], site: &Site) {
    let mut machines = Vec::new();
    for (number, (owner, wire)) in (1..).zip(["alice", "bob"].into_iter().zip(wires)) {
        machines.push(ClientMachine::start(site, number, owner, &wire.url()).await);
    }
    let colleagues =
        [colleague(gateways[0], &wires[0], ALICE).await, colleague(gateways[1], &wires[1], BOB).await];
    let names = ["alice", "bob"];
    let reads = colleagues
        .each_ref()
        .map(|client| client.call_tool_for_text("filesystem_read_file", json!({"path": "notes.txt"})));
    for (read, owner) in reads.into_iter().zip(names) {
        let text = read.await;
        assert!(text.contains(&format!("a file of {owner}")), "{owner}: {text}");
    }
    for (client, owner) in colleagues.iter().zip(names) {
        let write = json!({"path": "made.txt", "content": format!("for {owner}")});
        client.call_tool_for_text("filesystem_write_file", write).await;
    }
    for (machine, owner) in machines.iter_mut().zip(names) {
        assert_eq!(machine.file("made.txt"), Some(format!("for {owner}")));
        let answer = machine.ide.call("filesystem_read_file", json!({"path": "made.txt"})).await;
        assert!(text_of(&answer).contains(&format!("for {owner}")), "{answer}");
        machine.ide.echoes("remote").await;
    }
    assert!(!site.project().join("made.txt").exists());
}

#[test]
fn a_gateway_with_tls_is_reached_and_attached_to() {
    among_gateways(async || {
        let site = Site::new("connect-tls");
        write_tokens(&site);
        let made = trusted_certificate(&site, FIRST);
        let (certificate, key) = (site.directory.join("gateway.pem"), site.directory.join("key.pem"));
        write_private(&key, &made.signing_key.serialize_pem());
        write_private(&certificate, &made.cert.pem());
        let builder =
            site.gateway().host(FIRST).flag("--auth-token-file").flag(site.directory.join("tokens"));
        let gateway =
            builder.flag("--tls-cert").flag(&certificate).flag("--tls-key").flag(&key).start().await;
        assert!(gateway.url().starts_with("https://"), "{}", gateway.url());
        let mut alice = ClientMachine::start(&site, 1, "alice", gateway.url()).await;
        alice.ide.echoes("remote").await;
        gateway.wait_for_log("the client's machine is attached").await;

        std::fs::remove_file(site.directory.join("cert.pem")).unwrap();
        let mut bob = ClientMachine::start(&site, 2, "bob", gateway.url()).await;
        let refused = bob.ide.call("remote_echo", json!({"text": "x"})).await;
        assert!(refused.get("error").is_some(), "an untrusted certificate is refused: {refused}");
        bob.ide.echoes("local").await;
    });
}

#[test]
fn plain_http_to_another_machine_is_refused_before_anything_is_sent() {
    among_gateways(async || {
        let recorder = Recorder::start_at(FIRST, "HTTP/1.1 404 Not Found".to_owned()).await;
        let connect = async |url: &str, token: &str| -> Output {
            let mut connect = Command::new(ringfence_binary());
            connect.args(["connect", url]).env("RINGFENCE_TOKEN", token).stdin(Stdio::null());
            connect.output().await.unwrap()
        };
        for token in [ALICE, ""] {
            let refused = connect(&recorder.url(), token).await;
            let told = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{told}");
            assert!(
                told.contains("refusing to connect to 10.9.0.1") && told.contains("hint: use https://"),
                "{told}"
            );
            assert!(!told.contains(ALICE), "{told}");
        }
        assert_eq!(recorder.received().len(), 0);
        let here = connect("http://127.0.0.1:9", ALICE).await;
        assert!(here.status.success(), "the control: {here:?}");
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--header", &format!("Authorization: Bearer {ALICE}"), &recorder.url()]);
        curl.output().await.expect("curl is installed");
        assert!(recorder.has_received(ALICE), "the control: it can be reached");
    });
}
