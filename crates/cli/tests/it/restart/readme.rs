//! The tour of README: a newcomer kills the gateway and goes on working in the same shell.

use std::path::Path;
use std::process::Stdio;

use testkit::{Gateway, GatewayBuilder, ringfence_binary};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::Site;

/// What the shell prints when it has run what it was given.
const DONE: &str = "the steps are done";

/// The shell commands of README, block by block, as they stand there.
fn steps() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```bash\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

struct Shell {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    /// Runs commands in the shell that goes on. Returns what they print.
    async fn run(&mut self, commands: &str) -> String {
        self.input.write_all(format!("{commands}\necho '{DONE}'\n").as_bytes()).await.unwrap();
        let mut printed = String::new();
        loop {
            let line = self.output.next_line().await.unwrap().expect("the shell goes on");
            if line == DONE {
                return printed;
            }
            printed += &(line + "\n");
        }
    }
}

#[tokio::test]
async fn a_newcomer_kills_the_gateway_of_the_tour_and_goes_on() {
    let mut site = Site::new("tour");
    let home = site.project.join("home");
    std::fs::create_dir_all(home.join("tour")).unwrap();
    let serve = |site: &Site| -> GatewayBuilder {
        Gateway::built_in()
            .flag("--sandbox-scope")
            .flag(home.join("tour"))
            .env("HOME", &home)
            .env("XDG_CACHE_HOME", site.state.join("caches"))
    };
    let mut gateway = site.start(serve(&site)).await;
    let programs = ringfence_binary().parent().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("bash")
        .env("HOME", &home)
        .env("XDG_CACHE_HOME", site.state.join("caches"))
        .env("PATH", format!("{}:{path}", programs.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let input = shell.stdin.take().unwrap();
    let output = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut open = Shell { input, output };
    let steps = steps();
    let [tour, after] = &steps[..] else { panic!("README has {} blocks of shell commands", steps.len()) };
    let port = format!("127.0.0.1:{}", site.port);
    let printed = open.run(&tour.replace("127.0.0.1:3000", &port)).await;
    assert!(printed.contains("mine.txt") && printed.contains("ready"), "{printed}");
    assert!(!home.join("tour/web/theirs.txt").exists(), "{printed}");
    gateway.kill().await;
    let gateway = site.start(serve(&site)).await;
    let printed = open.run(after).await;
    assert!(printed.contains("hello"), "{printed}");
    assert_eq!(gateway.counter("sessions_restored").await, 1);
    shell.kill().await.unwrap();
}
