//! Judges real connections of real processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Pid;

use super::*;

fn supervisors() -> &'static Supervisors {
    Box::leak(Box::default())
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
        let (peers, listener) = (Peers::with(supervisors()), listener(address));
        let mut shell = Shell::start();
        let first = shell.connect(&listener, 8);
        assert_eq!(judge(&peers, &first), Peer::Outside);
        assert_eq!(peers.lock().len(), 1);
        let second = shell.connect(&listener, 9);
        assert_eq!(judge(&peers, &second), Peer::Outside);
        assert_eq!(judge(&peers, &first), Peer::Outside);
        assert_eq!(peers.lock().len(), 1);
    }
}

#[test]
fn who_descends_from_a_supervisor_is_fenced() {
    let supervisors = supervisors();
    let (peers, listener) = (Peers::with(supervisors), listener("127.0.0.1"));
    let mut supervisor = Shell::start();
    let address = listener.local_addr().unwrap();
    // A grandchild of the supervisor connects.
    let (ip, port) = (address.ip(), address.port());
    supervisor.run(&format!("(bash -c 'exec 8<>/dev/tcp/{ip}/{port}; echo done; read -u 8' & wait) & : "));
    let accepted = listener.accept().unwrap().0;
    assert_eq!(judge(&peers, &accepted), Peer::Outside, "the control: nobody is a supervisor yet");
    let registration = supervisors.enter(supervisor.pid());
    // Makes the remembered pid look like that of another process.
    peers.lock()[0].start -= 1;
    assert_eq!(judge(&peers, &accepted), Peer::Fenced);
    let fresh = Peers::with(supervisors);
    assert_eq!(judge(&fresh, &accepted), Peer::Fenced);
    assert!(fresh.lock().is_empty());
    drop(registration);
    assert_eq!(judge(&fresh, &accepted), Peer::Fenced, "a supervisor that was let go of still runs");
}

#[test]
fn a_fenced_holder_counts_beside_one_outside() {
    let supervisors = supervisors();
    let (peers, listener) = (Peers::with(supervisors), listener("127.0.0.1"));
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    // A child of the shell inherits the connection, and so does its own child.
    shell.run("(bash -c 'echo done; read -u 8'; :) &");
    assert_eq!(judge(&peers, &accepted), Peer::Outside, "the control: nobody is a supervisor yet");
    let child = crate::process_table::children_of(shell.pid())[0];
    let grandchild = crate::process_table::children_of(child)[0];
    for fenced in [child, grandchild] {
        let registration = supervisors.enter(fenced);
        assert_eq!(judge(&Peers::with(supervisors), &accepted), Peer::Fenced);
        registration.reaped();
    }
}

#[test]
fn while_a_fence_is_being_put_up_descendants_of_this_process_are_unknown() {
    let supervisors = supervisors();
    let (peers, listener) = (Peers::with(supervisors), listener("127.0.0.1"));
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    let launching = supervisors.launching();
    assert_eq!(judge(&peers, &accepted), Peer::Unknown);
    drop(launching);
    assert_eq!(judge(&peers, &accepted), Peer::Outside);
}

#[test]
fn this_process_is_no_client_of_its_own() {
    for (bind, connect) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
        let (peers, listener) = (Peers::with(supervisors()), listener(bind));
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
        let peers = Peers::with(supervisors);
        let listener = listener(&bound);
        let port = listener.local_addr().unwrap().port();
        let mut shell = Shell::start();
        shell.run(&format!("exec 8<>/dev/tcp/{address}/{port}; echo done"));
        let accepted = listener.accept().unwrap().0;
        assert_eq!(accepted.peer_addr().unwrap().ip(), address);
        assert_eq!(judge(&peers, &accepted), Peer::Outside, "the control: nobody is a supervisor yet");
        let registration = supervisors.enter(shell.pid());
        assert_eq!(judge(&Peers::with(supervisors), &accepted), Peer::Fenced, "{bound}");
        registration.reaped();
        shell.run("exec 8>&-; echo done");
        let (peer, local) = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
        drop(accepted);
        assert_eq!(peers.judge(peer, local), Peer::Unknown, "gone, and from this host");
    }
}

#[test]
fn a_connection_that_was_closed_or_never_was_is_nobodys() {
    let (peers, listener) = (Peers::with(supervisors()), listener("127.0.0.1"));
    let mut shell = Shell::start();
    let accepted = shell.connect(&listener, 8);
    shell.run("exec 8>&-; echo done");
    assert_eq!(judge(&peers, &accepted), Peer::Unknown, "closed by its process");
    let (peer, local) = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
    // The connection is reset, so no trace is left of the other end.
    drop(accepted);
    assert_eq!(peers.judge(peer, local), Peer::Unknown, "gone");
    let never = SocketAddr::from(([127, 0, 0, 1], 1));
    assert_eq!(peers.judge(never, local), Peer::Unknown);
    // A documentation address. If there is a route to it, it is not this host's.
    let elsewhere = SocketAddr::from(([198, 51, 100, 1], 1));
    let has_route = UdpSocket::bind("0.0.0.0:0").unwrap().connect(elsewhere).is_ok();
    assert_eq!(peers.judge(elsewhere, local), if has_route { Peer::Outside } else { Peer::Unknown });
}

#[test]
fn a_connection_in_flight_between_processes_is_nobodys() {
    let (peers, listener) = (Peers::with(supervisors()), listener("127.0.0.1"));
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
    let verdict = |worst, outside, is_hidden_inside| Findings { worst, outside, is_hidden_inside }.verdict();
    let somebody = holders::processes_of_this_user().unwrap().pop();
    assert_eq!(verdict(None, somebody, true), Peer::Outside);
    assert_eq!(verdict(Some(Peer::Fenced), somebody, false), Peer::Fenced);
    assert_eq!(verdict(Some(Peer::Unknown), somebody, false), Peer::Unknown);
    assert_eq!(verdict(None, None, true), Peer::Fenced);
    assert_eq!(verdict(None, None, false), Peer::Unknown);
}

#[test]
fn only_so_many_are_remembered() {
    let (peers, listener) = (Peers::with(supervisors()), listener("127.0.0.1"));
    let mut shells: Vec<Shell> = (0..MAX_REMEMBERED + 2).map(|_| Shell::start()).collect();
    for shell in &mut shells {
        let accepted = shell.connect(&listener, 8);
        assert_eq!(judge(&peers, &accepted), Peer::Outside);
    }
    assert_eq!(peers.lock().len(), MAX_REMEMBERED);
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
            assert_eq!(judge(), Peer::Outside);
        }
        eprintln!("{what}: {:?}", begin.elapsed() / ROUNDS);
    };
    time("not seen before", &|| judge(&Peers::with(&SUPERVISORS), &accepted));
    let peers = Peers::with(&SUPERVISORS);
    time("remembered", &|| judge(&peers, &accepted));
    eprintln!("processes of this user: {}", holders::processes_of_this_user().unwrap().len());
}
