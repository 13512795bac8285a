//! The fence as the gateway uses it: many launches by one launcher, and a scope that is swapped between the
//! plan and the launch.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use fence::{
    Allowance, Command, DeniedPath, Ending, LaunchError, Launcher, Limits, Network, Plan, Policy, ReadMode,
    Stdio, Temp, TierChoice, UnixSockets, VettedDirectory,
};
use rustix::process::Pid;
use testkit::{WorkspaceDir, ringfence_binary, workspace_dir};

/// A scope, a directory beside it, a temporary directory, and a launcher.
struct Ground {
    workspace: WorkspaceDir,
    launcher: Launcher,
    tier: TierChoice,
}

const TIERS: [TierChoice; 2] = [TierChoice::A, TierChoice::B];

impl Ground {
    fn new(name: &str, tier: TierChoice) -> Self {
        let workspace = workspace_dir(name);
        for directory in ["scope", "beside", "temp"] {
            std::fs::create_dir(workspace.join(directory)).unwrap();
        }
        let launcher = Launcher::with_executable(&ringfence_binary()).with_zygote();
        Self { workspace, launcher, tier }
    }

    fn scope(&self) -> PathBuf {
        self.workspace.join("scope")
    }

    fn plan(&self) -> Plan {
        self.plan_denying("beside")
    }

    fn plan_denying(&self, denied: &str) -> Plan {
        let policy = Policy {
            scope: vec![fence::vet_scope(&self.scope(), None, None).unwrap()],
            read_write: vec![VettedDirectory::own(&self.workspace.join("temp")).unwrap()],
            staged: None,
            mirrored: Vec::new(),
            read: ReadMode::Open { also: Vec::new() },
            deny_read: DeniedPath::resolve(&self.workspace.join(denied)),
            read_only: false,
            hidden: Vec::new(),
            protected: Vec::new(),
            git: Vec::new(),
            metadata: fence::MetadataChoice::Writable,
            temp: Temp::Private { directory: self.workspace.join("temp"), bytes: 1 << 20 },
            network: Network::None,
            unix_sockets: UnixSockets::Deny,
            allowances: BTreeSet::from([Allowance::Root]),
            limits: Limits::default(),
            tier: self.tier,
            allow_degraded: BTreeSet::new(),
            require: BTreeSet::new(),
            user: None,
            shared_hardlinks: None,
        };
        fence::plan(&policy, &self.launcher.kernel()).unwrap()
    }

    /// Runs a script and returns its ending and its output.
    fn run(&self, plan: &Plan, script: &str) -> Result<(Ending, String), LaunchError> {
        self.run_under(plan, script).map(|(_, ending, text)| (ending, text))
    }

    /// The same, with the pid of the supervisor.
    fn run_under(&self, plan: &Plan, script: &str) -> Result<(Pid, Ending, String), LaunchError> {
        let command = Command {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            directory: self.scope(),
            confinement_variable: None,
            files: None,
        };
        let nothing = File::open("/dev/null").unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let stdio = Stdio { stdin: nothing.as_fd(), stdout: writer.as_fd(), stderr: writer.as_fd() };
        let launched = self.launcher.launch(plan, &command, stdio, self.workspace.path());
        drop(writer);
        let mut text = String::new();
        let mut reader = reader;
        let mut fenced = launched?;
        reader.read_to_string(&mut text).unwrap();
        Ok((fenced.supervisor(), fenced.wait()?, text))
    }
}

fn swap(path: &Path, by: impl FnOnce()) {
    std::fs::rename(path, path.with_extension("before")).unwrap();
    by();
}

#[test]
fn one_launcher_serves_many_and_none_sees_another() {
    for tier in TIERS {
        let ground = Ground::new("launch-many", tier);
        let plan = ground.plan();
        for number in 0..20 {
            let (ending, text) = ground.run(&plan, &format!("echo {number}; exit {number}")).unwrap();
            assert_eq!((ending.code, text.trim()), (Some(number), number.to_string().as_str()), "{tier:?}");
        }
        let (_, text) = ground.run(&plan, "echo no > ../beside/x; ls /proc/self/fd | wc -l").unwrap();
        assert!(!ground.workspace.join("beside/x").exists());
        // The three standard streams, and the directory that `ls` has open.
        assert_eq!(text.lines().last().map(str::trim), Some("4"), "{text}");
    }
}

#[test]
fn launches_at_the_same_time_do_not_meet() {
    for tier in TIERS {
        let ground = Ground::new("launch-together", tier);
        let plan = ground.plan();
        std::thread::scope(|threads| {
            for number in 0..8 {
                let (ground, plan) = (&ground, &plan);
                threads.spawn(move || {
                    for round in 0..5 {
                        let word = format!("{number}.{round}");
                        let (ending, text) = ground.run(plan, &format!("echo {word}")).unwrap();
                        assert_eq!((ending.code, text.trim()), (Some(0), word.as_str()));
                    }
                });
            }
        });
    }
}

/// Waits for the copy of the zygote that has made namespaces and a root ahead: a child that is in another pid namespace.
fn copy_that_waits() -> Pid {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace("self");
    loop {
        let children = fence::children_of(rustix::process::getpid());
        let is_apart =
            |pid: &Pid| namespace(&pid.as_raw_nonzero().to_string()).is_some_and(|its| Some(its) != own);
        if let Some(pid) = children.into_iter().find(is_apart) {
            return pid;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn what_was_made_ahead_serves_one_launch_and_knows_nothing_of_the_one_before() {
    let ground = Ground::new("launch-ahead", TierChoice::B);
    let plan = ground.plan();
    ground.run(&plan, "echo left > /tmp/left; echo left > /dev/shm/left").unwrap();
    let first = copy_that_waits();
    let (supervisor, ending, text) = ground.run_under(&plan, "ls /tmp /dev/shm; echo done").unwrap();
    assert_eq!((supervisor, ending.code), (first, Some(0)), "it was claimed");
    assert!(text.contains("done") && !text.contains("left"), "{text}");
    assert_ne!(copy_that_waits(), first);
}

#[test]
fn a_root_made_ahead_is_built_again_if_the_host_or_the_policy_has_changed() {
    let ground = Ground::new("launch-ahead-changed", TierChoice::B);
    let shown = ground.workspace.join("shown");
    std::fs::write(&shown, "old").unwrap();
    let plan = ground.plan();
    assert!(ground.run(&plan, "cat ../shown").unwrap().1.contains("old"));
    let copy = copy_that_waits();
    std::fs::write(shown.with_extension("new"), "new").unwrap();
    std::fs::rename(shown.with_extension("new"), &shown).unwrap();
    std::fs::write(ground.workspace.join("added"), "added").unwrap();
    let (supervisor, _, text) = ground.run_under(&plan, "cat ../shown ../added").unwrap();
    assert_eq!(supervisor, copy, "its namespaces are used all the same");
    assert_eq!(text, "newadded");
    copy_that_waits();
    let denied = ground.run(&ground.plan_denying("shown"), "cat ../shown; ls ..").unwrap().1;
    assert!(
        !denied.contains("newadded") && denied.contains("No such file") && denied.contains("added"),
        "{denied}"
    );
}

#[test]
fn a_scope_that_became_another_directory_is_refused() {
    for tier in TIERS {
        let ground = Ground::new("launch-swapped", tier);
        let plan = ground.plan();
        assert_eq!(ground.run(&plan, "echo in > file").unwrap().0.code, Some(0), "the control");
        let scope = ground.scope();
        swap(&scope, || std::fs::create_dir(&scope).unwrap());
        let refused = ground.run(&plan, "echo in > file").unwrap_err();
        assert!(
            matches!(&refused, LaunchError::Refused { step, .. } if step == "scope"),
            "{tier:?}: {refused}"
        );
        assert!(!scope.join("file").exists());
    }
}

#[test]
fn a_scope_that_became_a_link_is_refused() {
    for tier in TIERS {
        let ground = Ground::new("launch-linked", tier);
        let plan = ground.plan();
        let (scope, beside) = (ground.scope(), ground.workspace.join("beside"));
        swap(&scope, || std::os::unix::fs::symlink(&beside, &scope).unwrap());
        let refused = ground.run(&plan, "echo in > file").unwrap_err();
        assert!(
            matches!(&refused, LaunchError::Refused { step, .. } if step == "scope"),
            "{tier:?}: {refused}"
        );
        assert!(!beside.join("file").exists());
    }
}

#[test]
fn a_parent_of_the_scope_that_was_swapped_widens_nothing() {
    for tier in TIERS {
        let (ground, other) = (Ground::new("launch-parent", tier), Ground::new("launch-other", tier));
        let plan = ground.plan();
        let parent = ground.workspace.path().to_owned();
        swap(&parent, || std::os::unix::fs::symlink(other.workspace.path(), &parent).unwrap());
        let refused = ground.run(&plan, "echo in > file").unwrap_err();
        assert!(matches!(&refused, LaunchError::Refused { .. }), "{tier:?}: {refused}");
        assert!(!other.scope().join("file").exists());
        std::fs::remove_file(&parent).unwrap();
        std::fs::rename(parent.with_extension("before"), &parent).unwrap();
    }
}
