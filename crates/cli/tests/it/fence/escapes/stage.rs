//! The stage of the attempts: their target files, the victim and another fenced command. Runs the attacker on it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, StatxFlags, XattrFlags};
use serde_json::Value;
use testkit::{
    ARGUMENT_SECRET, AttackResult, AttackStage, ENVIRONMENT_SECRET, InheritedDescriptors, KEY_SECRET,
    PipedProcess, VictimReport, within_deadline,
};
use tokio::process::Command;

use super::expected::{Fence, Network, ReadMode, Tier, all_ids};
use super::ground::{Caller, Ground, copy_program};
use super::post_run_scan::{Before, PostRunScan};

/// The text of each file outside until an attempt changes it.
pub(super) const ORIGINAL: &str = "original\n";

/// The configuration of the repository in the scope. What it names is missing, but for the first file, which includes
/// another one.
pub(super) const GIT_CONFIG: &str =
    "[include]\n\tpath = ../team.gitconfig\n\tpath = extra\n[core]\n\thooksPath = tools/hooks\n";

/// In a fence's PID namespace numbers start at 1, so a lower pid could also name a process inside.
const LOWEST_VICTIM_PID: i32 = 2000;

pub(super) struct Stage {
    ground: Ground,
    attack: AttackStage,
    victim: PipedProcess,
    /// A fenced command whose temporary directory is a target; without one, a plain directory is the target.
    other_command: Option<PipedProcess>,
    before: Before,
}

/// The outcome of a run of the attacker.
pub(super) struct Run {
    pub(super) results: Vec<AttackResult>,
    stderr: String,
}

impl Run {
    fn new(output: &Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {stderr}", output.status);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let results: Vec<AttackResult> =
            stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut ids: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, all_ids(), "each row is tried once: {stderr}");
        Self { results, stderr }
    }

    /// The report, which `--report --json` prints as one line on stderr.
    pub(super) fn report(&self) -> Value {
        let line = self.stderr.lines().find(|line| line.starts_with('{'));
        let line = line.unwrap_or_else(|| panic!("no report in {}", self.stderr));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Stage {
    /// `fence`: the fence around the attacker, if any.
    pub(super) async fn new(caller: Caller, fence: Option<Fence>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let unique_name = format!("ringfence-escape-{}-{number}", std::process::id());
        let ground = Ground::new(caller).await;
        place_files(&ground);
        place_metadata(&ground.scope());
        place_programs(&ground).await;
        ground.belongs_to_caller();
        grant_privileges(&ground);
        let mut victim = start_victim(&ground).await;
        let mut other_command = fence.map(|_| start_other_command(&ground));
        let other_temp = match &mut other_command {
            Some(command) => command.read_line().await.expect("the other command has a temporary directory"),
            None => ground.home().join("temp").to_string_lossy().into_owned(),
        };
        let launcher = if fence.is_some() { ground.ringfence() } else { ground.programs().join("launcher") };
        let attack = AttackStage {
            scope: ground.scope(),
            outside: ground.outside(),
            home: ground.home(),
            programs: ground.programs(),
            launcher,
            unique_name,
            other_temp: other_temp.into(),
            root_mount: root_mount(),
            victim: serde_json::from_value(victim.read().await).unwrap(),
            inherited: InheritedDescriptors { file: 60, socket: 61, unix: 62 },
        };
        let text = serde_json::to_string(&attack).unwrap();
        write_file(&ground.scope().join("stage.json"), &text, 0o644);
        let before = Before::of(&attack);
        Self { ground, attack, victim, other_command, before }
    }

    pub(super) async fn run_without_fence(&mut self) -> Run {
        let mut command = self.launcher();
        // Stands in for the supervisor of a fence.
        command.arg(self.ground.attacker()).arg("supervise").arg(self.ground.attacker());
        Run::new(&self.output(command).await)
    }

    pub(super) async fn run_fenced(&mut self, fence: Fence, options: &[&str]) -> Run {
        Run::new(&self.output_fenced(fence, options).await)
    }

    pub(super) async fn output_fenced(&mut self, fence: Fence, options: &[&str]) -> Output {
        let mut command = self.launcher();
        command.arg(self.ground.ringfence()).args(["run", "--report", "--json"]);
        command.args(["--tier", fence.tier.name(), "--net", fence.network.name()]);
        command.arg("--scope").arg(&self.attack.scope);
        let port = self.attack.victim.allowed_port.to_string();
        match fence.network {
            Network::Ports => command.args(["--tcp-port", &port]),
            Network::Localhost => command.args(["--host-port", &port]),
            Network::All | Network::None | Network::Loopback | Network::Http => &mut command,
        };
        if matches!(fence.read_mode, ReadMode::Strict) {
            command.args(["--read-mode", "strict", "--read"]).arg(&self.attack.programs);
        } else {
            command.args(["--read-mode", "open"]);
        }
        if matches!(fence.tier, Tier::A) && self.ground.caller.is_root() {
            command.arg("--allow-root");
        }
        command.args(options).arg("--").arg(self.ground.attacker());
        self.output(command).await
    }

    /// The program that opens the descriptors to inherit and then executes its arguments.
    fn launcher(&self) -> Command {
        let mut command = self.ground.command(self.ground.attacker());
        command.arg("launch").arg(self.stage_file());
        command
    }

    async fn output(&self, mut command: Command) -> Output {
        command.arg("try").arg(self.stage_file());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().unwrap();
        within_deadline("all attempts are made", child.wait_with_output()).await.unwrap()
    }

    fn stage_file(&self) -> std::path::PathBuf {
        self.attack.in_scope("stage.json")
    }

    /// Observes all effects from outside, then ends the victim and the other command.
    pub(super) async fn finish(mut self, results: &[AttackResult]) -> PostRunScan {
        self.victim.write_line("report").await;
        let victim: VictimReport = serde_json::from_value(self.victim.read().await).unwrap();
        let scan = PostRunScan::look(&self.attack, &self.before, &victim, results);
        self.victim.close_stdin();
        let status = self.victim.exit_status().await;
        assert!(status.success(), "the victim ended badly: {status}");
        if let Some(other_command) = &mut self.other_command {
            other_command.close_stdin();
            let status = other_command.exit_status().await;
            assert!(status.success(), "the other command ended badly: {status}");
        }
        scan
    }
}

fn place_files(ground: &Ground) {
    let (scope, outside, home) = (ground.scope(), ground.outside(), ground.home());
    for name in [
        "f02", "f03", "f04", "f05", "f06", "f08", "f10", "f11", "f12", "f20", "f26", "f27", "f28", "f29",
        "f30", "f42", "f43", "f45", "f46", "f47", "f48", "f49", "f51", "d09", "d10", "k17", "w7",
    ] {
        write_file(&outside.join(name), ORIGINAL, 0o600);
    }
    for name in ["f07", "z4-chmod", "x4"] {
        write_file(&scope.join(name), ORIGINAL, 0o600);
    }
    write_file(&scope.join("f42"), "written by the attacker\n", 0o600);
    for directory in [outside.join("f22"), home.join(".ssh"), home.join("temp")] {
        std::fs::create_dir(directory).unwrap();
    }
    std::fs::hard_link(outside.join("f11"), scope.join("f11")).unwrap();
    let key = home.join(".ssh/id_rsa");
    write_file(&key, KEY_SECRET, 0o600);
    rustix::fs::setxattr(&key, "user.secret", KEY_SECRET.as_bytes(), XattrFlags::CREATE).unwrap();
    symlink(outside.join("f12"), scope.join("f12-link")).unwrap();
    symlink(&outside, scope.join("outside-link")).unwrap();
    symlink(&key, scope.join("r06-link")).unwrap();
    write_file(&scope.join("x5"), &format!("#!{}\n", outside.join("interpreter").display()), 0o755);
    write_file(&ground.programs().join("launcher"), ORIGINAL, 0o755);
}

/// Makes what programs outside obey: a repository, and settings of editors and agents. Others are missing, and one link
/// leads to what is.
fn place_metadata(scope: &Path) {
    for directory in [
        ".git/objects",
        ".git/refs",
        ".git/hooks",
        ".git/info",
        ".husky",
        ".cursor",
        ".idea",
        "shared/codex",
        "later",
        "scripts",
    ] {
        std::fs::create_dir_all(scope.join(directory)).unwrap();
    }
    write_file(&scope.join(".git/HEAD"), "ref: refs/heads/main\n", 0o644);
    write_file(&scope.join(".git/config"), GIT_CONFIG, 0o600);
    write_file(&scope.join("team.gitconfig"), "[include]\n\tpath = more.gitconfig\n", 0o600);
    for name in [".mcp.json", ".idea/run.xml", "container.json", "scripts/commit-msg"] {
        write_file(&scope.join(name), ORIGINAL, 0o600);
    }
    symlink("shared/codex", scope.join(".codex")).unwrap();
    symlink("later/gemini", scope.join(".gemini")).unwrap();
    symlink("step", scope.join(".devcontainer.json")).unwrap();
    symlink("container.json", scope.join("step")).unwrap();
    symlink("../../scripts/commit-msg", scope.join(".git/hooks/commit-msg")).unwrap();
}

/// The number that the kernel gave to the mount at `/`, which it never gives to another.
fn root_mount() -> u64 {
    const UNIQUE_MOUNT_ID: u32 = 0x4000;
    let mask = StatxFlags::from_bits_retain(UNIQUE_MOUNT_ID);
    rustix::fs::statx(CWD, "/", AtFlags::empty(), mask).unwrap().stx_mnt_id
}

async fn place_programs(ground: &Ground) {
    for name in ["attacker-setuid", "attacker-capable"] {
        copy_program(&ground.attacker(), &ground.programs().join(name)).await;
    }
    copy_program(Path::new("/bin/true"), &ground.outside().join("interpreter")).await;
}

/// Makes one program set-user-id root and lets another open raw sockets. Only root can do this.
fn grant_privileges(ground: &Ground) {
    // `struct vfs_cap_data`: revision 2 and effective; CAP_NET_RAW permitted; none inheritable.
    const NET_RAW: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    if ground.caller == Caller::Own {
        return;
    }
    let [setuid, capable] = ["attacker-setuid", "attacker-capable"].map(|name| ground.programs().join(name));
    std::os::unix::fs::lchown(&setuid, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755)).unwrap();
    let capability: Vec<u8> = NET_RAW.iter().flat_map(|word| word.to_le_bytes()).collect();
    rustix::fs::setxattr(&capable, "security.capability", &capability, XattrFlags::empty()).unwrap();
}

fn write_file(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

async fn start_victim(ground: &Ground) -> PipedProcess {
    loop {
        let mut command = ground.command(ground.attacker());
        command.arg("victim").arg(ground.outside()).arg(ARGUMENT_SECRET).current_dir(ground.outside());
        command.env("VICTIM_SECRET", ENVIRONMENT_SECRET);
        let mut victim = PipedProcess::start(&mut command);
        if victim.child.id().is_some_and(|pid| pid.cast_signed() >= LOWEST_VICTIM_PID) {
            return victim;
        }
        victim.close_stdin();
        victim.exit_status().await;
        for socket in ["stream.sock", "datagram.sock"] {
            drop(std::fs::remove_file(ground.outside().join(socket)));
        }
    }
}

/// Runs in Tier A, where the temporary directory is on the host and other commands could reach it.
fn start_other_command(ground: &Ground) -> PipedProcess {
    let scope = ground.home().join("temp");
    let mut command = ground.command(ground.ringfence());
    command.args(["run", "--tier", "a", "--net", "none", "--scope"]).arg(scope);
    if ground.caller.is_root() {
        command.arg("--allow-root");
    }
    command.arg("--").arg(ground.attacker()).arg("show-temp");
    PipedProcess::start(&mut command)
}
