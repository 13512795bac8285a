//! Judges real connections of real processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Pid;

use super::*;

fn supervisors() -> &'static Supervisors {
    Box::leak(Box::default())
}

/// Ringfence's own directory of one test.
fn own() -> PathBuf {
    crate::test_directory::directory(&format!(
        "peers-{}",
        std::thread::current().name().unwrap().replace("::", "-")
    ))
}

fn peers_knowing(supervisors: &'static Supervisors) -> Peers {
    // Registered nowhere, so that only this process knows its supervisors.
    Peers::with(supervisors, Path::new("/nonexistent"))
}

/// A shell that runs the lines it is given and ends with its input.
struct Shell {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        let mut process = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    /// Runs a line that must print `done`.
    fn run(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        assert_eq!(said, "done\n", "{line}");
    }

    /// Connects from the shell itself, on descriptor `descriptor`.
    fn connect(&mut self, listener: &TcpListener, descriptor: u32) -> TcpStream {
        let address = listener.local_addr().unwrap();
        self.run(&format!("exec {descriptor}<>/dev/tcp/{}/{}; echo done", address.ip(), address.port()));
        listener.accept().unwrap().0
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.output.read_to_end(&mut Vec::new());
        let _ = self.process.wait();
    }
}

fn judge(peers: &Peers, accepted: &TcpStream) -> Peer {
    peers.judge(accepted.peer_addr().unwrap(), accepted.local_addr().unwrap())
}

fn listener(address: &str) -> TcpListener {
    TcpListener::bind((address, 0)).unwrap()
}

#[test]
fn a_plain_process_is_outside_also_when_it_is_remembered() {
    for address in ["127.0.0.1", "::1"] {
        let (peers, listener) = (peers_knowing(supervisors()), listener(address));
        let mut shell = Shell::start();
        let first = shell.connect(&listener, 8);
        assert_eq!(judge(&peers, &first), Peer::OwnUser);
        assert_eq!(peers.remembered.lock().outside.len(), 1);
        let second = shell.connect(&listener, 9);
        assert_eq!(judge(&peers, &second), Peer::OwnUser);
        assert_eq!(judge(&peers, &first), Peer::OwnUser);
        assert_eq!(peers.remembered.lock().outside.len(), 1);
    }
}

#[test]
fn who_descends_from_a_supervisor_is_fenced() {
    let supervisors = supervisors();
    let (peers, listener) = (peers_knowing(supervisors), listener("127.0.0.1"));
    let mut supervisor = Shell::start();
    let address = listener.local_addr().unwrap();
    // A grandchild of the supervisor connects.
    let (ip, port) = (address.ip(), address.port());
    supervisor.run(&format!("(bash -c 'exec 8<>/dev/tcp/{ip}/{port}; echo done; read -u 8' & wait) & : "));
    let accepted = listener.accept().unwrap().0;
    assert_eq!(judge(&peers, &accepted), Peer::OwnUser, "the control: nobody is a supervisor yet");
    let registration = supervisors.enter(supervisor.pid(), &own());
    // Makes the remembered pid look like that of another process.
    peers.remembered.lock().outside[0].start -= 1;
    assert_eq!(judge(&peers, &accepted), Peer::Fenced);
    let fresh = peers_knowing(supervisors);
    assert_eq!(judge(&fresh, &accepted), Peer::Fenced);
    assert!(fresh.remembered.lock().outside.is_empty());
    assert_eq!(fresh.remembered.lock().fenced.len(), 1);
    drop(registration);
    assert_eq!(judge(&fresh, &accepted), Peer::Fenced, "a supervisor that was let go of still runs");
}

#[test]
fn a_supervisor_that_another_process_registered_counts_by_pid_and_start() {
    let own = own();
    let listener = listener("127.0.0.1");
    let mut supervisor = Shell::start();
    let accepted = supervisor.connect(&listener, 8);
    // Another process has its own list, and only the files in common.
    let judge_anew = || judge(&Peers::with(supervisors(), &own), &accepted);
    assert_eq!(judge_anew(), Peer::OwnUser, "the control: no supervisor is registered yet");
    let registration = supervisors().enter(supervisor.pid(), &own);
    assert_eq!(judge_anew(), Peer::Fenced);
    let directory = crate::supervisor_files::directory_in(&own);
    let start = crate::process_table::ProcessStat::of(supervisor.pid()).unwrap().start_time;
    let name = |start: u64| directory.join(format!("{}-{start}", supervisor.pid().as_raw_nonzero()));
    std::fs::rename(name(start), name(start - 1)).unwrap();
    assert_eq!(judge_anew(), Peer::OwnUser, "an earlier process had this pid");
    std::fs::rename(name(start - 1), name(start)).unwrap();
    registration.reaped();
    assert_eq!(judge_anew(), Peer::OwnUser);
}

#[test]
fn a_supervisor_is_known_by_its_command_line_alone() {
    let listener = listener("127.0.0.1");
    let port = listener.local_addr().unwrap().port();
    for (role, expected) in [("fence-launch", Peer::Fenced), ("fence-like", Peer::OwnUser)] {
        // A shell with the command line of a launcher, whose child connects.
        let script = format!("bash -c 'exec 8<>/dev/tcp/127.0.0.1/{port}; read -u 8'; :");
        let directory = own();
        std::fs::write(directory.join(role), script).unwrap();
        let mut launcher = Command::new("bash");
        let mut launcher = launcher.arg0("ringfence").arg(role).current_dir(directory).spawn().unwrap();
        let accepted = listener.accept().unwrap().0;
        assert_eq!(judge(&peers_knowing(supervisors()), &accepted), expected, "{role}");
        drop(accepted);
        launcher.wait().unwrap();
    }
}

#[test]
fn a_fenced_holder_counts_beside_one_outside() {
    let supervisors = supervisors();
    let (peers, listener) = (peers_knowing(supervisors), listener("127.0.0.1"));
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    // A child of the shell inherits the connection, and so does its own child.
    shell.run("(bash -c 'echo done; read -u 8'; :) &");
    assert_eq!(judge(&peers, &accepted), Peer::OwnUser, "the control: nobody is a supervisor yet");
    let child = crate::process_table::children_of(shell.pid())[0];
    let grandchild = crate::process_table::children_of(child)[0];
    for fenced in [child, grandchild] {
        let registration = supervisors.enter(fenced, &own());
        assert_eq!(judge(&peers_knowing(supervisors), &accepted), Peer::Fenced);
        registration.reaped();
    }
}

#[test]
fn while_a_fence_is_being_put_up_descendants_of_this_process_are_unknown() {
    let supervisors = supervisors();
    let (peers, listener) = (peers_knowing(supervisors), listener("127.0.0.1"));
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    let launching = supervisors.launching();
    assert_eq!(judge(&peers, &accepted), Peer::Unknown);
    drop(launching);
    assert_eq!(judge(&peers, &accepted), Peer::OwnUser);
}

#[test]
fn this_process_is_no_client_of_its_own() {
    for (bind, connect) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
        let (peers, listener) = (peers_knowing(supervisors()), listener(bind));
        let client = TcpStream::connect((connect, listener.local_addr().unwrap().port())).unwrap();
        let accepted = listener.accept().unwrap().0;
        assert_eq!(judge(&peers, &accepted), Peer::Fenced, "{bind}");
        drop(client);
    }
}

/// The address that this host sends from, if it is on a network.
fn address_on_the_network() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Connecting a UDP socket sends nothing.
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[test]
fn an_address_on_the_network_is_no_way_round() {
    let Some(address) = address_on_the_network() else { return };
    let supervisors = supervisors();
    for bound in [address.to_string(), "0.0.0.0".to_owned()] {
        let peers = peers_knowing(supervisors);
        let listener = listener(&bound);
        let port = listener.local_addr().unwrap().port();
        let mut shell = Shell::start();
        shell.run(&format!("exec 8<>/dev/tcp/{address}/{port}; echo done"));
        let accepted = listener.accept().unwrap().0;
        assert_eq!(accepted.peer_addr().unwrap().ip(), address);
        assert_eq!(judge(&peers, &accepted), Peer::OwnUser, "the control: nobody is a supervisor yet");
        let registration = supervisors.enter(shell.pid(), &own());
        assert_eq!(judge(&peers_knowing(supervisors), &accepted), Peer::Fenced, "{bound}");
        registration.reaped();
        shell.run("exec 8>&-; echo done");
        let (peer, local) = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
        drop(accepted);
        assert_eq!(peers.judge(peer, local), Peer::Gone, "from this host");
    }
}

#[test]
fn a_connection_that_was_closed_is_told_from_one_whose_process_is_not_found() {
    let (peers, listener) = (peers_knowing(supervisors()), listener("127.0.0.1"));
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    shell.run("exec 8>&-; echo done");
    assert_eq!(judge(&peers, &accepted), Peer::Gone, "closed by its process");
    let (peer, local) = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
    // The connection is reset, so no trace is left of the other end.
    drop(accepted);
    assert_eq!(peers.judge(peer, local), Peer::Gone, "reset");
    let never = SocketAddr::from(([127, 0, 0, 1], 1));
    assert_eq!(peers.judge(never, local), Peer::Gone, "neither end is there");
    // A documentation address. If there is a route to it, it is not this host's.
    let elsewhere = SocketAddr::from(([198, 51, 100, 1], 1));
    let has_route = UdpSocket::bind("0.0.0.0:0").unwrap().connect(elsewhere).is_ok();
    assert_eq!(peers.judge(elsewhere, local), if has_route { Peer::Remote } else { Peer::Gone });
}

#[test]
fn a_client_that_resets_its_connection_or_is_killed_is_gone() {
    let (peers, listener) = (peers_knowing(supervisors()), listener("127.0.0.1"));
    for _ in 0..50 {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        // What is left unread when a socket is closed resets the connection.
        (&accepted).write_all(b"x").unwrap();
        client.peek(&mut [0]).unwrap();
        drop(client);
        assert_eq!(peers.judge(peer, accepted.local_addr().unwrap()), Peer::Gone);
    }
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    assert_eq!(judge(&peers, &accepted), Peer::OwnUser, "the control");
    shell.process.kill().unwrap();
    shell.process.wait().unwrap();
    assert_eq!(judge(&peers, &accepted), Peer::Gone);
}

#[test]
fn a_process_that_has_ended_is_gone() {
    let peers = peers_knowing(supervisors());
    let own_user = rustix::process::geteuid().as_raw();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    assert_eq!(peers.judge_process(Some(pid), own_user), Peer::OwnUser, "the control");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(peers.judge_process(Some(pid), own_user), Peer::Gone);
    assert_eq!(peers.judge_process(None, own_user), Peer::Unknown);
}

#[test]
fn a_connection_in_flight_between_processes_is_nobodys() {
    let (peers, listener) = (peers_knowing(supervisors()), listener("127.0.0.1"));
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let (sender, receiver) = crate::fd_passing::channel().unwrap();
    crate::fd_passing::send(&sender, b"x", &[client.as_fd()]).unwrap();
    assert_eq!(judge(&peers, &accepted), Peer::Fenced, "the control: held by this process");
    drop(client);
    assert_eq!(judge(&peers, &accepted), Peer::Unknown);
    drop(receiver);
}

#[test]
fn the_worst_holder_decides_and_then_who_hides() {
    let somebody = holders::processes_of_this_user().unwrap().pop();
    let verdict = |fenced, has_unknown, outside, is_hidden_inside| {
        Findings { fenced, outside, has_unknown, is_hidden_inside }.verdict()
    };
    assert_eq!(verdict(None, false, somebody, true), Standing::Outside);
    assert_eq!(verdict(somebody, true, somebody, false), Standing::Fenced);
    assert_eq!(verdict(None, true, somebody, false), Standing::Unknown);
    assert_eq!(verdict(None, false, None, true), Standing::Fenced);
    assert_eq!(verdict(None, false, None, false), Standing::Unknown);
}

#[test]
fn only_so_many_are_remembered() {
    let (peers, listener) = (peers_knowing(supervisors()), listener("127.0.0.1"));
    let mut shells: Vec<Shell> = (0..MAX_REMEMBERED + 2).map(|_| Shell::start()).collect();
    for shell in &mut shells {
        let accepted = shell.connect(&listener, 8);
        assert_eq!(judge(&peers, &accepted), Peer::OwnUser);
    }
    assert_eq!(peers.remembered.lock().outside.len(), MAX_REMEMBERED);
}

/// Prints figures and tests nothing: `cargo nextest run -p ringfence-fence peers --run-ignored only --no-capture`.
#[test]
#[ignore = "prints how long judging takes here"]
fn how_long_judging_takes() {
    const ROUNDS: u32 = 500;
    let listener = listener("127.0.0.1");
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    let time = |what: &str, judge: &dyn Fn() -> Peer| {
        let begin = std::time::Instant::now();
        for _ in 0..ROUNDS {
            assert_eq!(judge(), Peer::OwnUser);
        }
        eprintln!("{what}: {:?}", begin.elapsed() / ROUNDS);
    };
    time("not seen before", &|| judge(&peers_knowing(&SUPERVISORS), &accepted));
    let peers = peers_knowing(&SUPERVISORS);
    time("remembered", &|| judge(&peers, &accepted));
    eprintln!("processes of this user: {}", holders::processes_of_this_user().unwrap().len());
}
