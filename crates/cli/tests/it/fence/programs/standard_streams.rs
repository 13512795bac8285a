//! Standard input, output and error pass through the fence unchanged, whether files, pipes or sockets.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use testkit::within_deadline;

use super::fenced_run::{Ended, FencedRun};

const OFFLINE: &[&str] = &["--net", "none"];
const LARGE: usize = 50_000_000;

/// Pseudorandom bytes without a period, so that a lost, repeated or swapped piece shows.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    next.flatten().take(length).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn input_reaches_the_command_and_ends() {
    for run in FencedRun::in_each_tier().await {
        let command = run.command(OFFLINE, ["sh", "-c", "read -r first; echo \"$first\"; wc -l"]);
        let output = run.finish_with_input(command, b"one\ntwo\nthree\n".to_vec()).await;
        Ended::new(run.tier, &output).succeeded().assert_stdout("one\n2\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_megabytes_pass_unharmed_through_pipes() {
    let sent = bytes(LARGE);
    for run in FencedRun::in_each_tier().await {
        for options in [OFFLINE, &[OFFLINE, &["--max-output", "100M"]].concat()] {
            let output = run.finish_with_input(run.command(options, ["cat"]), sent.clone()).await;
            assert!(output.status.success(), "tier {}, {options:?}: {output:?}", run.tier);
            assert!(output.stdout == sent, "tier {}, {options:?}: not what was sent", run.tier);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_megabytes_pass_unharmed_through_files() {
    let sent = bytes(LARGE);
    for run in FencedRun::in_each_tier().await {
        let (input, output) = (run.ground.outside().join("input"), run.ground.outside().join("output"));
        std::fs::write(&input, &sent).unwrap();
        let mut command = run.command(OFFLINE, ["cat"]);
        command.stdin(File::open(&input).unwrap()).stdout(File::create(&output).unwrap());
        let _ = run.finish(command).await.succeeded();
        assert!(std::fs::read(&output).unwrap() == sent, "tier {}: not what was sent", run.tier);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_carried_so_that_the_command_has_pipes() {
    for run in FencedRun::in_each_tier().await {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (our_errors, their_errors) = UnixStream::pair().unwrap();
        let script = "for fd in 0 1 2; do readlink /proc/self/fd/$fd; done | cut -d : -f 1; \
                      echo to stderr >&2; cat";
        let mut command = run.command(OFFLINE, ["sh", "-c", script]);
        let clone: OwnedFd = theirs.try_clone().unwrap().into();
        command.stdin(Stdio::from(clone)).stdout(Stdio::from(OwnedFd::from(theirs)));
        command.stderr(Stdio::from(OwnedFd::from(their_errors)));
        let mut child = command.spawn().unwrap();
        // `command` still holds the child's ends of the sockets; close them so that EOF arrives.
        drop(command);
        let sent = bytes(1_000_000);
        let expected = [&b"pipe\npipe\npipe\n"[..], &sent].concat();
        let mut writer = ours.try_clone().unwrap();
        let writing = tokio::task::spawn_blocking(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let reading = tokio::task::spawn_blocking(move || read_to_end(ours));
        let errors = tokio::task::spawn_blocking(move || read_to_end(our_errors));
        let received = within_deadline("all output came", reading).await.unwrap();
        writing.await.unwrap();
        let status = within_deadline("ringfence ends", child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(0), "tier {}", run.tier);
        assert!(received == expected, "tier {}: not what was sent", run.tier);
        let errors = String::from_utf8(errors.await.unwrap()).unwrap();
        assert!(errors.contains("to stderr\n"), "tier {}: {errors}", run.tier);
    }
}

fn read_to_end(mut stream: UnixStream) -> Vec<u8> {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    received
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_the_command_with_a_broken_pipe() {
    for run in FencedRun::in_each_tier().await {
        let mut command = run.command(OFFLINE, ["yes"]);
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let status = within_deadline("ringfence ends", child.wait()).await.unwrap();
        // SIGPIPE, or the exit code of `yes` on a write error.
        assert!(matches!(status.code(), Some(141 | 1)), "tier {}: {status}", run.tier);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_streams_that_are_files_can_be_opened_by_name() {
    for run in FencedRun::in_each_tier().await {
        let outside = run.ground.outside();
        std::fs::write(outside.join("input"), "input\n").unwrap();
        let script = "cat /dev/stdin && echo more >> /dev/stdout && echo error > /dev/stderr";
        let mut command = run.command(OFFLINE, ["sh", "-c", script]);
        command.stdin(File::open(outside.join("input")).unwrap());
        command.stdout(File::create(outside.join("output")).unwrap());
        command.stderr(File::create(outside.join("errors")).unwrap());
        let status = within_deadline("ringfence ends", command.status()).await.unwrap();
        let text = |name: &str| std::fs::read_to_string(outside.join(name)).unwrap();
        let (output, errors) = (text("output"), text("errors"));
        assert_eq!(status.code(), Some(0), "tier {}: {output} {errors}", run.tier);
        assert_eq!(output, "input\nmore\n", "tier {}", run.tier);
        assert!(errors.contains("error\n"), "tier {}: {errors}", run.tier);
    }
}
