//! The limits of a fenced command, how it ends, and what ringfence says afterwards, tested with programs that
//! exhaust resources, refuse to end, or try to outlive their fence. In both tiers, as root and as a plain user.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{PipedProcess, descendants, process_exists, resident_bytes, wait_until, within_deadline};
use tokio::process::{Child, Command};

use crate::fence::escapes::ground::{Caller, Ground, callers, is_locked};

const TIERS: [&str; 2] = ["a", "b"];
const MEBIBYTE: u64 = 1 << 20;

/// A fence for the commands of one caller.
struct Fence {
    ground: Ground,
    tier: &'static str,
}

impl Fence {
    async fn new(tier: &'static str, caller: Caller) -> Self {
        Self { ground: Ground::new(caller).await, tier }
    }

    /// One fence for each caller and tier.
    async fn all() -> Vec<Self> {
        let mut fences = Vec::new();
        for caller in callers() {
            for tier in TIERS {
                fences.push(Self::new(tier, caller).await);
            }
        }
        fences
    }

    fn title(&self) -> String {
        format!("tier {}, {}", self.tier, self.ground.caller)
    }

    fn is_root(&self) -> bool {
        self.ground.caller.is_root()
    }

    fn in_scope(&self, name: &str) -> PathBuf {
        self.ground.scope().join(name)
    }

    /// `ringfence run` with its options, up to the `--` before the command.
    fn ringfence(&self, options: &[&str]) -> Command {
        let mut command = self.ground.command(self.ground.ringfence());
        command.args(["run", "--tier", self.tier, "--net", "none"]);
        if self.tier == "a" && self.is_root() {
            command.arg("--allow-root");
        }
        command.arg("--scope").arg(self.ground.scope()).args(options).arg("--");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// `ringfence run` with the attacker and its arguments.
    fn attacker(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.ringfence(options);
        command.arg(self.ground.attacker()).args(arguments);
        command
    }

    async fn attack(&self, options: &[&str], arguments: &[&str]) -> Ended {
        self.run(self.attacker(options, arguments)).await
    }

    async fn run(&self, mut command: Command) -> Ended {
        let child = command.spawn().unwrap();
        let output = within_deadline("ringfence ends", child.wait_with_output()).await.unwrap();
        Ended::new(&self.title(), &output)
    }

    fn lock(&self, name: &str) -> (PathBuf, String) {
        let path = self.in_scope(name);
        let text = path.to_str().unwrap().to_owned();
        (path, text)
    }
}

/// The outcome of a command, printed whole in failure messages.
#[derive(Debug)]
struct Ended {
    #[allow(dead_code, reason = "shown when a test fails")]
    title: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn new(title: &str, output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Self { title: title.to_owned(), code: output.status.code(), stdout, stderr }
    }

    /// Asserts that nothing ran and that the error gives this reason and a hint.
    fn assert_refused(&self, reason: &str) {
        assert_eq!(self.code, Some(125), "{self:?}");
        assert!(self.stderr.contains(reason) && self.stderr.contains("hint: "), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
    }

    fn assert_says(&self, text: &str) {
        assert!(self.stderr.contains(text), "no {text:?} in {self:?}");
    }

    /// The number in a message such as `forked 12, then EAGAIN`.
    fn count_before(&self, error: &str) -> u64 {
        let line = self.stderr.lines().find(|line| line.ends_with(error));
        let line = line.unwrap_or_else(|| panic!("no {error} in {self:?}"));
        line.split([' ', ',']).find_map(|word| word.parse().ok()).unwrap()
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().expect("it still runs").cast_signed();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

async fn wait_until_locked(locks: &[&Path]) {
    wait_until(&format!("{locks:?} are locked"), async || locks.iter().all(|lock| is_locked(lock))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_needs_to_be_allowed_where_only_tier_a_protects() {
    if let Some(root) = callers().into_iter().find(|caller| caller.is_root()) {
        let ground = Ground::new(root).await;
        let mut command = ground.command(ground.ringfence());
        command.args(["run", "--tier", "a", "--", "/bin/true"]);
        let ended = Ended::new("root", &command.output().await.unwrap());
        ended.assert_refused("--allow-root");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q1_a_fork_bomb_ends_at_the_limit_and_the_reason_is_said() {
    for fence in Fence::all().await {
        let ended = fence.attack(&["--processes", "20"], &["fork-bomb"]).await;
        match (fence.ground.caller, fence.tier) {
            // Without control groups the limit would count all processes of the user, so ringfence refuses it.
            (Caller::Plain, "a") => ended.assert_refused("pid_limit"),
            (Caller::Own, "a") if ended.code == Some(125) => ended.assert_refused("pid_limit"),
            // In a user namespace the limit counts only processes inside, but the kernel does not report reaching it.
            (Caller::Plain | Caller::Own, _) => assert!(ended.count_before("EAGAIN") < 20, "{ended:?}"),
            (Caller::Root, _) => {
                assert!(ended.count_before("EAGAIN") < 20, "{ended:?}");
                ended.assert_says("process limit");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_processes_of_the_same_user_do_not_count_towards_the_limit() {
    for caller in callers() {
        let fence = Fence::new("b", caller).await;
        let mut crowd = Vec::new();
        for _ in 0..25 {
            let mut command = fence.ground.command("/bin/cat");
            crowd.push(command.stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap());
        }
        let ended = fence.attack(&["--processes", "20"], &["fork-bomb"]).await;
        let count = ended.count_before("EAGAIN");
        assert!((10..20).contains(&count), "{ended:?}");
        for mut process in crowd {
            drop(process.stdin.take());
            within_deadline("cat ends with its input", process.wait()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q2_a_command_that_uses_more_memory_than_it_may_is_killed_and_the_reason_is_said() {
    for fence in Fence::all().await {
        let ended = fence.attack(&["--memory", "64M"], &["hog-memory", "200"]).await;
        match fence.ground.caller {
            Caller::Plain => ended.assert_refused("memory_limit"),
            Caller::Own if ended.code == Some(125) => ended.assert_refused("memory_limit"),
            Caller::Root | Caller::Own => {
                assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
                assert_eq!(ended.stdout, "", "it got the memory: {ended:?}");
                ended.assert_says("memory limit");
            }
        }
        let ended = fence.attack(&[], &["hog-memory", "200"]).await;
        assert_eq!(ended.stdout, "got 200 MiB\n", "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q3_descriptors_run_out_inside_only() {
    for fence in Fence::all().await {
        let ended = fence.attack(&["--open-files", "64"], &["open-files"]).await;
        assert_eq!(ended.code, Some(1), "the command's own: {ended:?}");
        assert!(ended.count_before("EMFILE") < 64, "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q4_private_temporary_directories_are_bounded() {
    for caller in callers() {
        let fence = Fence::new("b", caller).await;
        for directory in ["/tmp", "/var/tmp", "/dev/shm"] {
            let ended = fence.attack(&["--temp-size", "8M"], &["fill", directory]).await;
            assert!(ended.count_before("ENOSPC") <= 8, "{directory}: {ended:?}");
        }
        let ended = fence.attack(&["--temp-size", "300M"], &["fill", "/tmp"]).await;
        assert_eq!(ended.stdout, "filled 256 MiB\n", "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q5_the_share_of_the_processors_is_set_for_the_control_group() {
    let Some(root) = callers().into_iter().find(|caller| caller.is_root()) else {
        assert!(!rustix::process::geteuid().is_root());
        return;
    };
    for tier in TIERS {
        let fence = Fence::new(tier, root).await;
        let (path, lock) = fence.lock("lock");
        let mut child = fence.attacker(&["--cpus", "1.5"], &["stay", &lock]).spawn().unwrap();
        wait_until_locked(&[&path]).await;
        let attacker = attacker_below(&fence, child.id().unwrap());
        let share = processor_share(attacker);
        assert!((share - 1.5).abs() < 0.01, "{}: {share}", fence.title());
        signal(&child, Signal::TERM);
        within_deadline("ringfence ends", child.wait()).await.unwrap();
        assert!(!is_locked(&path), "{}", fence.title());
    }
}

/// The pid of the attacker among ringfence's descendants.
fn attacker_below(fence: &Fence, ringfence: u32) -> u32 {
    let program = fence.ground.attacker();
    let is_attacker =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let below = descendants(ringfence);
    below.iter().copied().find(is_attacker).unwrap_or_else(|| panic!("the attacker is not among {below:?}"))
}

/// How many processors' time the control group of a process may use.
fn processor_share(pid: u32) -> f64 {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let read = |path: String| std::fs::read_to_string(path).ok();
    let numbers = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.split(',').any(|controller| controller == "cpu") {
            let directory = format!("/sys/fs/cgroup/{controllers}{path}");
            let quota = read(format!("{directory}/cpu.cfs_quota_us"))?;
            return Some(format!("{} {}", quota.trim(), read(format!("{directory}/cpu.cfs_period_us"))?));
        }
        controllers.is_empty().then(|| read(format!("/sys/fs/cgroup{path}/cpu.max")))?
    });
    let numbers = numbers.unwrap_or_else(|| panic!("no group with a share of the processors: {groups}"));
    let mut numbers = numbers.split_whitespace().map(|number| number.parse::<f64>().unwrap());
    numbers.next().unwrap() / numbers.next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn q6_too_much_output_ends_the_command_and_the_reason_is_said() {
    for fence in Fence::all().await {
        let ended = fence.attack(&["--max-output", "1M"], &["flood", "64"]).await;
        assert_ne!(ended.code, Some(0), "{} bytes", ended.stdout.len());
        assert!(ended.stdout.len() as u64 <= MEBIBYTE, "{} bytes", ended.stdout.len());
        assert!(ended.stderr.contains("output limit"), "{}", ended.stderr);
        let ended = fence.attack(&["--max-output", "3M"], &["flood", "2"]).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stdout.len() as u64, 2 * MEBIBYTE, "nothing is lost");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q6_output_that_nobody_reads_holds_the_command_up_and_is_not_kept() {
    for fence in Fence::all().await {
        let mut child = fence.attacker(&["--max-output", "1G"], &["flood", "512"]).spawn().unwrap();
        let ringfence = child.id().unwrap();
        let program = fence.ground.attacker();
        wait_until("the flooder runs", async || {
            let runs =
                |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
            descendants(ringfence).into_iter().any(runs)
        })
        .await;
        let flooder = attacker_below(&fence, ringfence);
        wait_until_held_up(flooder).await;
        let written = written_bytes(flooder).expect("the flooder has not ended");
        assert!(written < 16 * MEBIBYTE, "{}: {written} bytes went somewhere", fence.title());
        let mut processes = descendants(ringfence);
        processes.push(ringfence);
        for pid in processes {
            let resident = resident_bytes(pid);
            assert!(resident < 64 * MEBIBYTE, "{}: {pid} has {resident} bytes", fence.title());
        }
        signal(&child, Signal::TERM);
        wait_until("the flooder is gone", async || !process_exists(flooder)).await;
        // The test still reads no output, so ringfence may be blocked on writing it; a second signal must end it.
        signal(&child, Signal::INT);
        within_deadline("ringfence ends", child.wait()).await.unwrap();
    }
}

fn written_bytes(pid: u32) -> Option<u64> {
    let figures = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    figures.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// Waits until the process has written nothing for many polls in a row, or has ended.
async fn wait_until_held_up(pid: u32) {
    let (mut last, mut looks) = (None, 0);
    wait_until("the flooder is held up or has ended", async || {
        let now = written_bytes(pid);
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        now.is_none() || (looks > 40 && now > Some(0))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q7_a_daemon_does_not_outlive_the_command() {
    for fence in Fence::all().await {
        let (path, lock) = fence.lock("lock");
        let ended = fence.attack(&[], &["daemonise", &lock]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "locked\n"), "{ended:?}");
        assert!(!is_locked(&path), "the daemon lives: {ended:?}");
    }
}

/// ringfence forwards the first signal to the command and kills it at the second.
#[tokio::test(flavor = "multi_thread")]
async fn q8_a_command_that_ignores_polite_signals_is_killed() {
    for fence in Fence::all().await {
        let (path, lock) = fence.lock("lock");
        let mut child = fence.attacker(&[], &["stay-stubbornly", &lock]).spawn().unwrap();
        wait_until_locked(&[&path]).await;
        signal(&child, Signal::TERM);
        signal(&child, Signal::INT);
        let status = within_deadline("ringfence ends", child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(128 + 9), "{}: {status}", fence.title());
        assert!(!is_locked(&path), "{}: the command lives", fence.title());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q10_nothing_is_left_when_ringfence_is_killed() {
    for fence in Fence::all().await {
        let (of_daemon, daemon) = fence.lock("daemon");
        let (of_command, command) = fence.lock("command");
        let attacker = fence.ground.attacker();
        let attacker = attacker.to_str().unwrap();
        let script = format!("{attacker} daemonise {daemon} && exec {attacker} stay-stubbornly {command}");
        let mut ringfence = fence.ringfence(&["--read", attacker]);
        let mut child = ringfence.args(["/bin/sh", "-c", &script]).spawn().unwrap();
        wait_until_locked(&[&of_daemon, &of_command]).await;
        signal(&child, Signal::KILL);
        within_deadline("ringfence ends", child.wait()).await.unwrap();
        wait_until("nothing inside runs any more", async || {
            !is_locked(&of_daemon) && !is_locked(&of_command)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t4_a_scope_that_is_moved_away_stays_the_scope_and_its_name_leads_nowhere_else() {
    for fence in Fence::all().await {
        let (scope, outside) = (fence.ground.scope(), fence.ground.outside());
        let absolute = fence.in_scope("by-name");
        let mut command =
            fence.attacker(&[], &["create-when-told", "by-directory", absolute.to_str().unwrap()]);
        let mut attacker = PipedProcess::start(&mut command);
        assert_eq!(attacker.read_line().await.as_deref(), Some("ready"), "{}", fence.title());
        let moved = scope.with_file_name("moved");
        std::fs::rename(&scope, &moved).unwrap();
        symlink(&outside, &scope).unwrap();
        attacker.write_line("").await;
        assert_eq!(attacker.read_line().await.as_deref(), Some("created"), "{}", fence.title());
        attacker.write_line("").await;
        let answer = attacker.read_line().await.unwrap();
        // In Tier B the name is that of a mount, which is still the scope.
        let expected = if fence.tier == "b" { "created" } else { "EACCES" };
        assert_eq!(answer, expected, "{}", fence.title());
        attacker.close_stdin();
        attacker.exit_status().await;
        assert!(moved.join("by-directory").exists(), "{}", fence.title());
        assert_eq!(moved.join("by-name").exists(), fence.tier == "b", "{}", fence.title());
        assert!(!outside.join("by-name").exists(), "{}", fence.title());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn z2_new_links_that_leave_the_scope_are_named_at_the_end() {
    for fence in Fence::all().await {
        let old_link = fence.in_scope("old-link");
        symlink("/etc/hosts", &old_link).unwrap();
        // ringfence tells old links from new ones by whole seconds, so start the command in a later second.
        let made = old_link.symlink_metadata().unwrap().ctime();
        wait_until("a later second has begun", async || seconds_now() > made).await;
        let script = "ln -s /etc/passwd leads-out && ln -s leads-out leads-in && mkdir d && ln -s ../.. d/up";
        let mut command = fence.ringfence(&[]);
        command.args(["/bin/sh", "-c", script]);
        let ended = fence.run(command).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.assert_says("leads-out");
        ended.assert_says("d/up");
        assert!(!ended.stderr.contains("old-link"), "{ended:?}");
    }
}

fn seconds_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_variables_that_make_programs_load_code_are_not_passed_unless_forced() {
    for fence in Fence::all().await {
        let options =
            ["--env", "LD_PRELOAD=/nowhere.so", "--env", "NODE_OPTIONS=--nothing", "--env", "KEPT=yes"];
        let mut command = fence.ringfence(&options);
        command.arg("/usr/bin/env");
        let ended = fence.run(command).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("KEPT=yes\n"), "{ended:?}");
        for name in ["LD_PRELOAD", "NODE_OPTIONS"] {
            assert!(!ended.stdout.contains(name), "{ended:?}");
            ended.assert_says(name);
        }
        let mut command = fence.ringfence(&["--force-env", "NODE_OPTIONS=--forced"]);
        command.arg("/usr/bin/env");
        let ended = fence.run(command).await;
        assert!(ended.stdout.contains("NODE_OPTIONS=--forced\n"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_programs_planted_in_the_scope_are_never_run_outside_the_fence() {
    for fence in Fence::all().await {
        let outside = fence.ground.outside();
        for name in ["sh", "bash", "git", "ip", "mount", "unshare", "newuidmap", "newgidmap", "true", "node"]
        {
            let path = fence.in_scope(name);
            std::fs::write(&path, format!("#!/bin/sh\n: > {}/{name}\n", outside.display())).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        fence.ground.belongs_to_caller();
        let search_path = format!("{}:/usr/bin:/bin", fence.ground.scope().display());
        for arguments in [
            ["run", "--", "true"].as_slice(),
            &["run", "--", "/bin/sh", "-c", "git; ip; node"],
            &["sandboxed_shell", "--working-directory", ".", "--", "git; sh -c :"],
            &["doctor"],
        ] {
            let mut command = fence.ground.command(fence.ground.ringfence());
            command.arg(arguments[0]).args(["--tier", fence.tier]).env("PATH", &search_path);
            if fence.tier == "a" && fence.is_root() {
                command.arg("--allow-root");
            }
            let ended = Ended::new(&fence.title(), &command.args(&arguments[1..]).output().await.unwrap());
            assert!(ended.code.is_some_and(|code| code != 125), "{arguments:?}: {ended:?}");
            let planted: Vec<_> = std::fs::read_dir(&outside).unwrap().flatten().collect();
            assert!(planted.is_empty(), "{arguments:?}: {planted:?}: {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_a_32_bit_program_is_killed_and_the_reason_is_said() {
    for fence in Fence::all().await {
        let program = fence.in_scope("program");
        let mut command = fence.ground.command(fence.ground.attacker());
        command.arg("write-32-bit-program").arg(&program);
        assert!(command.status().await.unwrap().success());
        assert!(fence.ground.command(&program).status().await.unwrap().success(), "it runs without a fence");
        let mut command = fence.ringfence(&[]);
        command.arg(&program);
        let ended = fence.run(command).await;
        assert_eq!(ended.code, Some(128 + 31), "{ended:?}");
        ended.assert_says("32-bit");
    }
}

const RACE_ROUNDS: &str = "5000";
/// Usually enough to win the race without a fence; if not, the test runs the race again.
const CONTROL_ROUNDS: &str = "200";

/// Makes a directory in the scope that the attacker will exchange with a link to one outside.
fn prepare_race(ground: &Ground) -> (PathBuf, PathBuf) {
    let (inside, outside) = (ground.scope().join("race"), ground.outside().join("race"));
    for directory in [&inside.join("flipped"), &outside] {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("existing"), "original").unwrap();
    }
    symlink(&outside, inside.join("link")).unwrap();
    ground.belongs_to_caller();
    (inside, outside)
}

/// Whether anything outside changed.
fn is_changed(outside: &Path) -> bool {
    let names: Vec<_> = std::fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names != ["existing"] || std::fs::read_to_string(outside.join("existing")).unwrap() != "original"
}

#[tokio::test(flavor = "multi_thread")]
async fn t1_a_race_with_links_is_lost_by_nobody_inside_the_fence() {
    for fence in Fence::all().await {
        let (inside, outside) = prepare_race(&fence.ground);
        for seed in ["1", "20261115", "18446744073709551557"] {
            let ended = fence.attack(&[], &["race", inside.to_str().unwrap(), RACE_ROUNDS, seed]).await;
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(!is_changed(&outside), "seed {seed} got out: {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t1_the_same_race_without_a_fence_changes_what_is_outside() {
    for caller in callers() {
        let ground = Ground::new(caller).await;
        let (inside, outside) = prepare_race(&ground);
        let mut seed = 0_u64;
        wait_until("the race changes what is outside", async || {
            seed += 1;
            let mut command = ground.command(ground.attacker());
            command.arg("race").arg(&inside).args([CONTROL_ROUNDS, &seed.to_string()]);
            assert!(command.output().await.unwrap().status.success());
            is_changed(&outside)
        })
        .await;
    }
}
