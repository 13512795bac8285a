//! Operations with real shells. Tests wait on conditions, not on the clock.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

use super::{
    LookupError, Operation, OperationLimits, Operations, Report, ShellCommand, StartError, State, Waited,
};

/// Long enough for a busy machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn operations() -> Operations {
    // The grace before SIGKILL is short, because some tests start processes that ignore SIGTERM.
    with_limits(|_| {})
}

fn with_limits(change: impl FnOnce(&mut OperationLimits)) -> Operations {
    let mut limits = OperationLimits { grace: Duration::from_millis(200), ..OperationLimits::default() };
    change(&mut limits);
    Operations::new(limits).unwrap()
}

fn command(script: &str) -> ShellCommand {
    ShellCommand {
        script: script.to_owned(),
        directory: here().into(),
        directory_name: "/".to_owned(),
        environment: Vec::new(),
        timeout: None,
    }
}

/// The directory of the test binary, which is readable and writable inside a fence too.
fn here() -> File {
    File::open(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn finish(operation: &Operation) -> Report {
    assert_eq!(operation.wait(Instant::now() + PATIENCE, &|| false, &mut |_| {}), Waited::Ended);
    operation.report()
}

fn run(script: &str) -> Report {
    finish(&operations().start(command(script)).unwrap())
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a script has written `count` process ids.
fn pids(operation: &Operation, count: usize) -> Vec<Pid> {
    let mut found = Vec::new();
    until("the pids are written", || {
        let output = operation.report().output;
        found = output.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect();
        found.len() >= count
    });
    found
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

#[test]
fn an_exit_code_is_reported() {
    assert_eq!(run("exit 0").state, State::Exited { code: 0 });
    assert_eq!(run("exit 42").state, State::Exited { code: 42 });
    assert_eq!(run("no-such-program-at-all").state, State::Exited { code: 127 });
}

#[test]
fn a_signal_is_reported_by_name() {
    let report = run("kill -SEGV $$");
    assert!(matches!(report.state, State::Signalled { name: "SIGSEGV", .. }), "{:?}", report.state);
    assert_eq!(report.state.to_string(), "ended by SIGSEGV");
}

#[test]
fn output_and_errors_keep_their_order() {
    let report = run("for i in 1 2 3; do echo out $i; echo err $i >&2; done; echo last > /dev/stderr");
    assert_eq!(report.output, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nlast\n");
    assert_eq!((report.output_bytes, report.omitted_bytes), (report.output.len() as u64, 0));
}

#[test]
fn a_script_is_taken_as_it_is() {
    assert_eq!(
        run("echo \"it's\" 'quo\"ted' \\$HOME\n\n# a comment\necho second").output,
        "it's quo\"ted $HOME\nsecond\n"
    );
    assert_eq!(run("cat <<END\nhere\nEND").output, "here\n");
    // The shell looks for a program of that name, and does not take it as an option.
    assert_eq!(run("-x").state, State::Exited { code: 127 });
    assert_eq!(run("--version").state, State::Exited { code: 127 });
    assert_eq!(run("").state, State::Exited { code: 0 });
}

#[test]
fn a_script_that_is_too_long_is_refused_with_advice() {
    let operations = operations();
    let longest = format!("exit 3 #{}", "x".repeat(128 * 1024 - 1 - 8));
    assert_eq!(finish(&operations.start(command(&longest)).unwrap()).state, State::Exited { code: 3 });
    let error = operations.start(command(&format!("{longest}x"))).unwrap_err();
    assert!(error.to_string().contains("write it to a file"), "{error}");
}

#[test]
fn input_is_at_its_end() {
    assert_eq!(run("cat; read x; echo read $?").output, "read 1\n");
}

#[test]
fn commands_run_where_and_with_what_they_are_told() {
    let operations = operations();
    let directory = std::env::temp_dir().canonicalize().unwrap();
    let operation = operations
        .start(ShellCommand {
            directory: File::open(&directory).unwrap().into(),
            environment: vec![
                ("GREETING".to_owned(), "hello".to_owned()),
                ("PAGER".to_owned(), "less".to_owned()),
            ],
            ..command("pwd; echo $GREETING $PAGER $GIT_TERMINAL_PROMPT $RINGFENCE_OPERATION")
        })
        .unwrap();
    let expected = format!("{}\nhello less 0 {}\n", directory.display(), operation.id());
    assert_eq!(finish(&operation).output, expected);
}

#[test]
fn commands_inherit_no_descriptors() {
    // A descriptor without the close-on-exec flag.
    let careless = rustix::io::dup(here()).unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();
    // With two commands, the shell does not replace itself with the first.
    assert_eq!(run("ls /proc/$$/fd; true").output, "0\n1\n2\n");
}

#[test]
fn progress_bars_and_colours_are_shown_as_at_last() {
    assert_eq!(run("printf ' 1%%\\r99%%\\r\\033[K\\033[32mdone\\033[0m\\n'").output, "done\n");
}

/// The resident memory of this process, in KiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn much_output_leaves_both_ends_and_little_memory() {
    let before = resident();
    let report = run("echo first; seq 1 6700000; echo last");
    assert_eq!(report.state, State::Exited { code: 0 });
    assert!(report.output_bytes > 50_000_000, "{}", report.output_bytes);
    assert!(report.output.starts_with("first\n1\n2\n"));
    assert!(report.output.ends_with("\n6700000\nlast\n"));
    assert!(report.output.len() < 130 * 1024);
    let said = format!("[... {} bytes left out here ...]", report.omitted_bytes);
    assert!(report.output.lines().any(|line| line == said));
    let shown = report.output.len() - said.len() - 1;
    assert_eq!(report.omitted_bytes + shown as u64, report.output_bytes);
    // Leaves room for other tests in this process; 50 MB would still show.
    assert!(resident() < before + 20 * 1024, "{before} {}", resident());
}

#[test]
fn text_that_is_cut_has_no_broken_characters() {
    let report = run("head -c 600000 /dev/zero | sed 's/\\x00/€/g'");
    assert!(report.omitted_bytes > 0);
    assert!(!report.output.contains('\u{fffd}'));
}

#[test]
fn a_time_out_ends_what_has_left_the_session() {
    let operations = operations();
    let script = "setsid nohup sh -c 'setsid sleep 1000 & echo $! $$; sleep 1000' & wait; sleep 1000";
    let operation = operations
        .start(ShellCommand { timeout: Some(Duration::from_millis(500)), ..command(script) })
        .unwrap();
    let report = finish(&operation);
    assert_eq!((report.state, report.left_running), (State::TimedOut, 0));
    let pids = pids(&operation, 2);
    until("all processes have ended", || pids.iter().all(|pid| is_gone(*pid)));
}

#[test]
fn a_cancellation_ends_a_tree_that_does_not_listen() {
    let operations = operations();
    let script = "trap '' TERM HUP INT; (trap '' TERM; echo $BASHPID; while :; do sleep 1000; done) & echo $$; wait; wait";
    let operation = operations.start(command(script)).unwrap();
    let pids = pids(&operation, 2);
    operations.cancel(&operation.id().to_string(), "no longer wanted").unwrap();
    let report = finish(&operation);
    assert_eq!((report.state, report.left_running), (State::Cancelled, 0));
    assert_eq!(report.cancel_reason.as_deref(), Some("no longer wanted"));
    assert!(pids.iter().all(|pid| is_gone(*pid)));
}

#[test]
fn a_tree_that_listens_may_say_good_bye() {
    let operations = with_limits(|limits| limits.grace = PATIENCE);
    let operation = operations
        .start(command("trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.01; done"))
        .unwrap();
    pids(&operation, 1);
    operations.cancel(&operation.id().to_string(), "").unwrap();
    let report = finish(&operation);
    assert_eq!(report.state, State::Cancelled);
    assert!(report.output.ends_with("bye\n"), "{}", report.output);
}

#[test]
fn what_runs_in_the_background_goes_on_and_can_be_ended() {
    let operations = operations();
    let directory = std::env::current_exe().unwrap().with_file_name("shell-unit-tests");
    std::fs::create_dir_all(&directory).unwrap();
    let signal = directory.join(format!("background-{}", std::process::id()));
    let script = format!(
        "(while [ ! -e {0} ]; do sleep 0.01; done; echo later; exec sleep 1000) & setsid sleep 1000 > /dev/null 2>&1 & echo now",
        signal.display()
    );
    let operation = operations.start(command(&script)).unwrap();
    let report = finish(&operation);
    assert_eq!((report.state, report.output.as_str()), (State::Exited { code: 0 }, "now\n"));
    assert!(report.left_running >= 2, "{}", report.left_running);
    std::fs::write(&signal, "").unwrap();
    until("more is written", || operation.report().output == "now\nlater\n");
    std::fs::remove_file(&signal).unwrap();
    until("two sleep", || operation.report().left_running == 2);
    operations.cancel(&operation.id().to_string(), "enough").unwrap();
    let report = finish(&operation);
    // The shell keeps its own exit status.
    assert_eq!((report.state, report.left_running), (State::Exited { code: 0 }, 0));
    until("the thread has gone", || operation.is_quiet());
}

#[test]
fn a_command_can_end_what_an_earlier_one_has_left() {
    let operations = operations();
    let first = operations.start(command("sleep 1000 > /dev/null 2>&1 & echo $!")).unwrap();
    let pid = finish(&first).output;
    let second = operations.start(command(&format!("kill {pid}"))).unwrap();
    assert_eq!(finish(&second).state, State::Exited { code: 0 });
    until("it has ended", || first.report().left_running == 0);
}

#[test]
fn background_processes_can_write_after_the_call() {
    let operations = operations();
    let operation = operations.start(command("(sleep 0.2; echo one; echo two; exec sleep 1000) &")).unwrap();
    finish(&operation);
    until("it writes", || operation.report().output == "one\ntwo\n");
    assert_eq!(operation.report().left_running, 1);
    operations.end_all();
    assert_eq!(operation.report().left_running, 0);
}

#[test]
fn too_many_at_once_are_refused_and_named() {
    let operations = with_limits(|limits| limits.running = 2);
    for _ in 0..2 {
        operations.start(command("sleep 1000")).unwrap();
    }
    let error = operations.start(command("true")).unwrap_err();
    assert!(matches!(&error, StartError::TooMany { running } if running.len() == 2));
    assert!(error.to_string().contains("op-1 (sleep 1000), op-2 (sleep 1000)"), "{error}");
    finish(&operations.cancel("op-1", "").unwrap());
    assert_eq!(operations.start(command("true")).unwrap().id().to_string(), "op-3");
    operations.end_all();
    assert!(matches!(operations.start(command("true")), Err(StartError::Closed)));
}

#[test]
fn too_many_in_the_background_are_refused() {
    let operations = with_limits(|limits| limits.left = 1);
    let first = operations.start(command("sleep 1000 > /dev/null 2>&1 &")).unwrap();
    finish(&first);
    assert!(
        matches!(operations.start(command("true")), Err(StartError::TooManyLeft { left }) if left.len() == 1)
    );
    finish(&operations.cancel("op-1", "").unwrap());
    until("the thread has gone", || first.is_quiet());
    operations.start(command("true")).unwrap();
}

#[test]
fn forgotten_operations_are_told_from_unknown_ones() {
    let operations = with_limits(|limits| limits.kept = 2);
    for _ in 0..4 {
        let operation = operations.start(command("true")).unwrap();
        finish(&operation);
        until("the thread has gone", || operation.is_quiet());
    }
    let ids: Vec<String> = operations.list().iter().map(|operation| operation.id().to_string()).collect();
    assert_eq!(ids, ["op-4", "op-3"]);
    assert_eq!(operations.get("op-3").unwrap().report().script, "true");
    assert!(matches!(operations.get("op-1"), Err(LookupError::Forgotten { .. })));
    for unknown in ["op-0", "op-5", "op-", "op-01", "1", "", "op--1"] {
        assert!(matches!(operations.get(unknown), Err(LookupError::Unknown { .. })), "{unknown}");
    }
}

#[test]
fn large_outputs_are_forgotten_earlier() {
    let operations = with_limits(|limits| limits.kept_bytes = 150 * 1024);
    for _ in 0..3 {
        let operation = operations.start(command("head -c 100000 /dev/zero")).unwrap();
        finish(&operation);
        until("the thread has gone", || operation.is_quiet());
    }
    assert_eq!(operations.list().len(), 1);
}

#[test]
fn waiting_ends_early_when_it_is_cancelled_or_the_time_is_over() {
    let operations = operations();
    let operation = operations.start(command("sleep 1000")).unwrap();
    assert_eq!(operation.wait(Instant::now(), &|| false, &mut |_| {}), Waited::TimeOver);
    let cancelled = Arc::new(AtomicBool::new(false));
    let waiting = {
        let (operation, cancelled) = (Arc::clone(&operation), Arc::clone(&cancelled));
        std::thread::spawn(move || {
            operation.wait(Instant::now() + PATIENCE, &|| cancelled.load(Ordering::SeqCst), &mut |_| {})
        })
    };
    cancelled.store(true, Ordering::SeqCst);
    assert_eq!(waiting.join().unwrap(), Waited::Cancelled);
    assert_eq!(operation.state(), State::Running);
    operations.end_all();
    assert_eq!(operation.state(), State::Cancelled);
}

#[test]
fn those_who_wait_see_output_as_it_comes() {
    let operations = operations();
    let operation = operations.start(command("echo one; sleep 0.3; echo two; exec sleep 1000")).unwrap();
    let seen = std::cell::RefCell::new(String::new());
    let both_seen = || seen.borrow().contains("two");
    let waited =
        operation.wait(Instant::now() + PATIENCE, &both_seen, &mut |new| seen.borrow_mut().push_str(new));
    assert_eq!((waited, seen.borrow().as_str()), (Waited::Cancelled, "one\ntwo\n"));
    operations.end_all();
}

#[test]
fn a_command_cannot_reach_the_server() {
    let operations = operations();
    assert!(operations.domain().protects_memory());
    let script = "readlink /proc/$PPID/fd/1; kill -0 $PPID; exec 3<> /proc/$PPID/mem; echo tried";
    let report = finish(&operations.start(command(script)).unwrap());
    assert!(!report.output.contains("pipe:") && !report.output.contains("/dev/"), "{}", report.output);
    let refusals = report.output.matches("not permitted").count() + report.output.matches("denied").count();
    assert_eq!(refusals, 1 + usize::from(operations.domain().protects_signals()), "{}", report.output);
}

fn own_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Children of this process that are zombies and do not belong to the tests' own session.
fn zombies() -> usize {
    let own = fence::membership_of(rustix::process::getpid()).unwrap();
    let children = fence::children_of(rustix::process::getpid());
    let of_commands = children
        .into_iter()
        .filter(|pid| fence::membership_of(*pid).is_some_and(|of| of.session != own.session));
    of_commands
        .filter(|pid| {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
        })
        .count()
}

#[test]
fn many_operations_leave_nothing_behind() {
    let operations = operations();
    let before = own_descriptors();
    for round in 0..200 {
        let script =
            if round % 4 == 0 { "setsid true & setsid sh -c 'true & true' &" } else { "true | true" };
        let operation = operations.start(command(script)).unwrap();
        finish(&operation);
        until("the thread has gone", || operation.is_quiet());
    }
    assert_eq!(operations.list().len(), 64);
    // Other tests in this process may briefly have descriptors and zombies too; a leak of 200 would last.
    until("descriptors are closed", || own_descriptors() < before + 60);
    until("zombies are collected", || {
        super::tree::reap_orphans();
        zombies() == 0
    });
}
