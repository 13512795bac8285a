//! What commands in the domain can and cannot do, each with a control outside it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, WaitOptions, WaitStatus, waitpid};

use super::child_side::restrict;
use super::fork_server::is_readable;
use super::*;
use crate::test_directory;

/// Stands for the server: a process of the same user, outside the domain, that may be killed.
struct Victim(Child);

impl Victim {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdout(Stdio::piped()).spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shell(script: &str, victim: &Victim) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("VICTIM", victim.0.id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(domain: &NestedDomain, script: &str, directory: &Path) -> io::Result<(Pid, File)> {
    let command = NestedCommand {
        program: c"/bin/sh".to_owned(),
        arguments: vec![c"sh".to_owned(), c"-c".to_owned(), CString::new(script).unwrap()],
        environment: vec![c"PATH=/usr/bin:/bin".to_owned(), c"MARK_OF_THE_TEST=1".to_owned()],
    };
    let (output, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let directory = open(directory);
    let pid = domain.spawn(&command, directory.as_fd(), theirs.as_fd())?;
    Ok((pid, output.into()))
}

/// Opens a directory without reading it, so that it need not be readable.
fn open(directory: &Path) -> OwnedFd {
    rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn wait(pid: Pid) -> WaitStatus {
    waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap().1
}

/// Runs a script in the domain; returns whether it succeeded, and its output.
fn nested(domain: &NestedDomain, script: &str) -> (bool, String) {
    let (pid, mut output) = start(domain, script, Path::new("/")).unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    (wait(pid).exit_status() == Some(0), text)
}

fn succeeds(domain: &NestedDomain, attack: &str, victim: &Victim) -> bool {
    nested(domain, &format!("VICTIM={}; {attack}", victim.0.id())).0
}

/// Leaves out `environ` and `maps`: new kernels show those to a process with `CAP_PERFMON`, as root in a test may
/// have, regardless of Landlock. In a fence no process has capabilities.
const ATTACKS_ON_MEMORY: &[&str] = &[
    "readlink /proc/$VICTIM/fd/1",
    "echo forged > /proc/$VICTIM/fd/1",
    "cat < /proc/$VICTIM/syscall",
    "exec 3<> /proc/$VICTIM/mem",
];

#[test]
fn a_command_in_the_domain_cannot_look_into_a_process_outside_it() {
    let domain = NestedDomain::prepare().unwrap();
    assert_eq!(domain.protects_memory(), landlock_version() >= FIRST_WITH_REFER);
    let victim = Victim::new();
    for attack in ATTACKS_ON_MEMORY {
        let refused = !succeeds(&domain, attack, &victim);
        assert_eq!(refused, domain.protects_memory(), "{attack}");
    }
    // The controls without the domain, except for attacks that other security modules may refuse.
    for attack in &ATTACKS_ON_MEMORY[..2] {
        let output = shell(attack, &victim).output().unwrap();
        assert!(output.status.success(), "{attack}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_command_in_the_domain_cannot_trace_a_process_outside_it() {
    let domain = NestedDomain::prepare().unwrap();
    let victim = Victim::new();
    let pid = libc::pid_t::try_from(victim.0.id()).unwrap();
    let seize = move || {
        // SAFETY: without an address and options nothing is read or written.
        let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut command = Command::new("true");
    let ruleset = domain.ruleset.as_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: both closures only make system calls.
    unsafe {
        command.pre_exec(move || ruleset.map_or(Ok(()), restrict));
        command.pre_exec(seize);
    }
    let refused = command.status().is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
    assert!(refused || !domain.protects_memory());
}

#[test]
fn a_command_in_the_domain_cannot_kill_a_process_outside_it() {
    let domain = NestedDomain::prepare().unwrap();
    assert_eq!(domain.protects_signals(), landlock_version() >= FIRST_WITH_SCOPES);
    let mut victim = Victim::new();
    assert_eq!(succeeds(&domain, "kill -KILL $VICTIM", &victim), !domain.protects_signals());
    if domain.protects_signals() {
        assert!(victim.is_alive());
    }
    let mut victim = Victim::new();
    assert!(shell("kill -KILL $VICTIM", &victim).status().unwrap().success());
    victim.0.wait().unwrap();
    assert!(!victim.is_alive());
}

#[test]
fn the_one_who_started_a_command_can_look_into_it_and_end_it() {
    let domain = NestedDomain::prepare().unwrap();
    let (pid, _output) = start(&domain, "exec sleep 1000", Path::new("/")).unwrap();
    // The environment of the new program appears a moment after it has closed the pipe.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let environment = || std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap();
    while !environment().split(|&byte| byte == 0).any(|entry| entry == b"MARK_OF_THE_TEST=1") {
        assert!(std::time::Instant::now() < end);
    }
    // The command leads its own session, and so its own process group.
    assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid);
    rustix::process::kill_process_group(pid, Signal::KILL).unwrap();
    assert_eq!(wait(pid).terminating_signal(), Some(libc::SIGKILL));
}

/// Like a `kill` of a server that an earlier command started in the background.
#[test]
fn a_command_can_end_what_another_has_started() {
    let domain = NestedDomain::prepare().unwrap();
    let (pid, _output) = start(&domain, "exec sleep 1000", Path::new("/")).unwrap();
    assert!(nested(&domain, &format!("kill -KILL {}", pid.as_raw_nonzero())).0);
    assert_eq!(wait(pid).terminating_signal(), Some(libc::SIGKILL));
}

#[test]
fn a_fork_server_that_was_killed_is_replaced() {
    let domain = NestedDomain::prepare().unwrap();
    assert_eq!(nested(&domain, "echo first"), (true, "first\n".to_owned()));
    let process = |domain: &NestedDomain| {
        let entrance = domain.entrance.lock();
        entrance.fork_server.as_ref().unwrap().process.try_clone().unwrap()
    };
    let first = process(&domain);
    rustix::process::pidfd_send_signal(&first, Signal::KILL).unwrap();
    assert!(is_readable(first.as_fd()), "it has ended");
    assert_eq!(nested(&domain, "echo second"), (true, "second\n".to_owned()));
    assert!(rustix::process::pidfd_send_signal(&first, Signal::KILL).is_err(), "it was collected");
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let domain = NestedDomain::prepare().unwrap();
    let nothing = File::open("/dev/null").unwrap();
    let missing = NestedCommand {
        program: c"/no/such/program".to_owned(),
        arguments: vec![c"program".to_owned()],
        environment: Vec::new(),
    };
    let error = domain.spawn(&missing, open(Path::new("/")).as_fd(), nothing.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let error = domain.spawn(&missing, nothing.as_fd(), nothing.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    let huge = CString::new(vec![b'x'; ExecPage::BYTES]).unwrap();
    let large = NestedCommand { arguments: vec![huge], ..missing };
    let error = domain.spawn(&large, nothing.as_fd(), nothing.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
}

#[test]
fn commands_have_three_descriptors_default_signals_and_no_input() {
    let domain = NestedDomain::prepare().unwrap();
    // A descriptor left open by careless code.
    let careless = rustix::io::dup(File::open("/dev/null").unwrap()).unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();
    let script = "cat; ls /proc/$$/fd; awk '/Sig(Blk|Ign)/ { print substr($2, 10) }' /proc/self/status; readlink /proc/$$/fd/0";
    let (_, text) = nested(&domain, script);
    // The C library reserves some signals above 31, and may ignore them.
    assert_eq!(text, "0\n1\n2\n0000000\n0000000\n/dev/null\n");
}

/// A nested domain that only restricts signals would forbid this inside one that restricts files.
#[test]
fn files_can_be_renamed_from_one_directory_to_another_in_nested_domains() {
    let place = test_directory::directory("nested-rename");
    std::fs::create_dir(place.join("from")).unwrap();
    std::fs::create_dir(place.join("to")).unwrap();
    std::fs::write(place.join("from/file"), "").unwrap();
    // Domains apply to threads: this thread enters the outer domain.
    let outer = rules(false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            outer.as_ref().map_or(Ok(()), |outer| restrict(outer.as_raw_fd())).unwrap();
            let inner = NestedDomain::prepare().unwrap();
            let (pid, _) = start(&inner, "mv -n from/file to/file && ln to/file from/link", &place).unwrap();
            assert_eq!(wait(pid).exit_status(), Some(0));
        });
    });
    assert!(place.join("to/file").exists() && place.join("from/link").exists());
}

#[test]
fn older_kernels_get_what_they_have() {
    for (version, memory, signals) in
        [(0, false, false), (1, false, false), (2, true, false), (5, true, false)]
    {
        // Skips versions that this kernel does not support.
        if version <= landlock_version() {
            let domain = NestedDomain::prepare_for(version).unwrap();
            assert_eq!((domain.protects_memory(), domain.protects_signals()), (memory, signals), "{version}");
        }
    }
}

#[test]
fn a_shielded_process_is_closed_to_others() {
    shield_this_process().unwrap();
    assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
}
