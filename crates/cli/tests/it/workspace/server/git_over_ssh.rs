//! `git push` to a real ssh server. The fence keeps keys and the agent away, and says so; with the agent that the operator
//! lends, the push works, and the key itself still cannot be read.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Gateway, PipedProcess, Project, WorkspaceDir, sshd, wait_until, workspace_dir};

use super::Session;
use crate::workspace::security::ground::tiers;

/// The user that the server runs as if root runs the tests. A server of root would need accounts of the system.
const PLAIN_USER: u32 = 12345;

/// An ssh server with a repository, and the home of a user whose key it knows.
struct Ground {
    home: PathBuf,
    repository: PathBuf,
    port: u16,
    _server: PipedProcess,
    agent: PipedProcess,
    _directory: WorkspaceDir,
}

impl Ground {
    async fn new() -> Self {
        let directory = workspace_dir("ssh");
        let base = directory.path().canonicalize().unwrap();
        let (home, server) = (base.join("home"), base.join("server"));
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        std::fs::create_dir_all(&server).unwrap();
        let port = free_port();
        make_key(&home.join(".ssh/id_ed25519"));
        make_key(&server.join("host_key"));
        let host_key = std::fs::read_to_string(server.join("host_key.pub")).unwrap();
        std::fs::write(home.join(".ssh/known_hosts"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
        let author = "[user]\n\tname = Ada\n\temail = ada@example.org\n";
        std::fs::write(home.join(".gitconfig"), author).unwrap();
        Self {
            _server: start_server(&server, &home.join(".ssh/id_ed25519.pub"), port).await,
            agent: start_agent(&home).await,
            repository: server.join("origin.git"),
            home,
            port,
            _directory: directory,
        }
    }

    /// A repository with one commit, whose `origin` is on the server.
    fn project(&self) -> Project {
        let project = Project::new("ssh-project");
        project.write("code.txt", "code\n");
        project.commit_all();
        let url = format!("ssh://git@127.0.0.1:{}{}", self.port, self.repository.display());
        project.git(&["remote", "add", "origin", &url]);
        project
    }

    fn known_hosts(&self) -> String {
        self.home.join(".ssh/known_hosts").display().to_string()
    }

    /// The address of the agent is a variable of the gateway in any case.
    async fn open(&self, project: &Project, flags: &[&str]) -> (Gateway, Session) {
        let gateway = Gateway::built_in()
            .flags(flags)
            .current_dir(&project.path)
            .env("HOME", &self.home)
            .env("SSH_AUTH_SOCK", self.socket())
            .start()
            .await;
        let session = Session::open(&gateway).await;
        (gateway, session)
    }

    fn socket(&self) -> PathBuf {
        socket_of(&self.home)
    }

    /// ssh takes the home of its user from the list of users, which is not the one of the test.
    fn push(&self, branch: &str) -> String {
        let ssh = format!("ssh -F none -o UserKnownHostsFile={}", self.known_hosts());
        format!("GIT_SSH_COMMAND='{ssh}' git push origin HEAD:{branch} 2>&1")
    }

    fn pushed(&self, branch: &str) -> String {
        let shown = Command::new("git")
            .args(["-c", "safe.directory=*", "-C"])
            .arg(&self.repository)
            .args(["log", "--format=%s", branch])
            .output()
            .unwrap();
        String::from_utf8(shown.stdout).unwrap()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn make_key(file: &Path) {
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

async fn start_server(directory: &Path, key: &Path, port: u16) -> PipedProcess {
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { PLAIN_USER } else { rustix::process::geteuid().as_raw() };
    let place = |name: &str| directory.join(name);
    std::fs::copy(key, place("authorized_keys")).unwrap();
    std::fs::write(place("passwd"), format!("git:x:{user}:{user}::{}:/bin/sh\n", directory.display()))
        .unwrap();
    std::fs::write(place("group"), format!("git:x:{user}:\n")).unwrap();
    let settings = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        place("host_key").display(),
        place("authorized_keys").display(),
    );
    std::fs::write(place("sshd_config"), settings).unwrap();
    let made =
        Command::new("git").args(["init", "--quiet", "--bare"]).arg(place("origin.git")).status().unwrap();
    assert!(made.success());
    let mut command = sshd(&place("passwd"), &place("group"));
    command.args(["-D", "-e", "-f"]).arg(place("sshd_config"));
    if is_root {
        let owner = format!("{user}:{user}");
        assert!(Command::new("chown").args(["-R", &owner]).arg(directory).status().unwrap().success());
        command.uid(user).gid(user);
    }
    let process = PipedProcess::start(&mut command);
    wait_until("the ssh server listens", async || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    process
}

/// Where agents put their sockets: below `/tmp`, which fences hide.
fn socket_of(home: &Path) -> PathBuf {
    let name = home.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
    Path::new("/tmp").join(format!("agent-of-{name}"))
}

async fn start_agent(home: &Path) -> PipedProcess {
    let socket = socket_of(home);
    let _ = std::fs::remove_file(&socket);
    let agent =
        PipedProcess::start(tokio::process::Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket));
    wait_until("the agent listens", async || socket.exists()).await;
    let added = Command::new("ssh-add")
        .arg(home.join(".ssh/id_ed25519"))
        .env("SSH_AUTH_SOCK", &socket)
        .output()
        .unwrap();
    assert!(added.status.success(), "{added:?}");
    agent
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.agent.child.start_kill();
        let _ = std::fs::remove_file(self.socket());
    }
}

#[tokio::test]
async fn a_push_over_ssh_works_with_the_agent_that_the_operator_lends_and_says_what_it_lacks_without() {
    let ground = Ground::new().await;
    let (known_hosts, socket) = (ground.known_hosts(), ground.socket());
    let unix = ["--unix-sockets", "--allow-degraded", "unix_pathname"];
    let lend = ["--force-env", "SSH_AUTH_SOCK", "--read", socket.to_str().unwrap()];
    let know = ["--read", known_hosts.as_str()];
    for (number, tier) in tiers().into_iter().enumerate() {
        let project = ground.project();
        let push = ground.push(&format!("branch-{number}"));

        let (_gateway, session) = ground.open(&project, &tier).await;
        let refused = session.run_to_end(&push).await;
        assert_ne!(refused.data["exit_code"], 0, "{tier:?}");
        for words in ["[ringfence: ", "--read ~/.ssh/known_hosts", "--force-env SSH_AUTH_SOCK"] {
            assert!(refused.text.contains(words), "{tier:?}: {}", refused.text);
        }

        let (_gateway, session) = ground.open(&project, &[&tier[..], &know].concat()).await;
        let refused = session.run_to_end(&push).await;
        assert_ne!(refused.data["exit_code"], 0, "{tier:?}");
        for words in ["Permission denied (publickey)", "[ringfence: ", "--unix-sockets --allow-degraded"] {
            assert!(refused.text.contains(words), "{tier:?}: {}", refused.text);
        }

        let (_gateway, session) = ground.open(&project, &[&tier[..], &know, &unix, &lend].concat()).await;
        session.run(&push).await;
        assert_eq!(ground.pushed(&format!("branch-{number}")), "as it was\n", "{tier:?}");
        assert!(session.run("ssh-add -l").await.contains("ED25519"), "{tier:?}");
        let key = session.run_to_end(&format!("cat {}", ground.home.join(".ssh/id_ed25519").display())).await;
        assert_ne!(key.data["exit_code"], 0, "{tier:?}");
        assert!(!key.text.contains("PRIVATE KEY"), "{tier:?}: {}", key.text);
    }
}
