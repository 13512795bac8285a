//! Signals to `ringfence run` reach the command: its handlers run, and its exit code is returned.

use rustix::process::{Pid, Signal, kill_process};
use testkit::PipedProcess;

use super::fenced_run::FencedRun;

const SIGNALS: [(&str, Signal); 4] =
    [("INT", Signal::INT), ("TERM", Signal::TERM), ("HUP", Signal::HUP), ("QUIT", Signal::QUIT)];

/// Starts a script and waits until it is ready.
async fn start(run: &FencedRun, script: &str) -> PipedProcess {
    let mut process = PipedProcess::start(&mut run.command(&["--net", "none"], ["sh", "-c", script]));
    assert_eq!(process.read_line().await.as_deref(), Some("ready"), "tier {}: {script}", run.tier);
    process
}

fn send(process: &PipedProcess, signal: Signal) {
    let pid = process.child.id().expect("it still runs").cast_signed();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_the_handler_of_the_command() {
    for run in FencedRun::in_each_tier().await {
        for (name, signal) in SIGNALS {
            let script = format!("trap 'echo caught {name}; exit 7' {name}; echo ready; sleep 1000 & wait");
            let mut process = start(&run, &script).await;
            send(&process, signal);
            assert_eq!(process.read_line().await, Some(format!("caught {name}")), "tier {}", run.tier);
            assert_eq!(process.exit_status().await.code(), Some(7), "tier {}, {name}", run.tier);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_command_without_a_handler() {
    for run in FencedRun::in_each_tier().await {
        for (name, signal) in [("INT", Signal::INT), ("TERM", Signal::TERM), ("HUP", Signal::HUP)] {
            let mut process = start(&run, "echo ready; exec sleep 1000").await;
            send(&process, signal);
            let code = process.exit_status().await.code();
            assert_eq!(code, Some(128 + signal.as_raw()), "tier {}, {name}", run.tier);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_kills_a_command_that_goes_on_after_the_first() {
    for run in FencedRun::in_each_tier().await {
        for (name, signal) in [("INT", Signal::INT), ("TERM", Signal::TERM)] {
            let script =
                format!("trap 'echo caught' {name}; echo ready; while :; do sleep 1000 & wait; done");
            let mut process = start(&run, &script).await;
            send(&process, signal);
            assert_eq!(process.read_line().await.as_deref(), Some("caught"), "tier {}, {name}", run.tier);
            send(&process, signal);
            assert_eq!(process.exit_status().await.code(), Some(137), "tier {}, {name}", run.tier);
        }
    }
}
