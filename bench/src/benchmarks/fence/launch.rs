//! Starts the same command in every variant. The policy is the default of `ringfence run`; it is planned once, so
//! that only the launch is timed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use fence::environment::{self, OwnPlaces};
use fence::{
    Allowance, DeniedPath, Fenced, Kernel, Launcher, Limit, LimitOrigin, Limits, Network, OwnDirectory, Plan,
    Policy, ReadMode, SessionDirectory, Temp, Tier, TierChoice, UnixSockets, VettedDirectory,
};

use crate::benchmarks::fence::variants::FenceVariant;
use crate::error::{Error, WhileDoing};
use crate::programs::Programs;

/// The defaults of `ringfence run`.
pub(crate) const TEMP_BYTES: u64 = 1024 * 1024 * 1024;
const PROCESSES: u64 = 2048;

/// The launchers, plans and directories of a run. The launchers are kept for the whole run, so that their one-time
/// checks are over after the warm-up.
#[derive(Debug)]
pub(crate) struct FenceHost {
    /// Keeps a loaded launcher ready, as a gateway does.
    launcher: Launcher,
    cold_launcher: Launcher,
    kernel: Kernel,
    plans: BTreeMap<FenceVariant, Plan>,
    session: SessionDirectory,
    own: OwnDirectory,
    caches: PathBuf,
    scope: PathBuf,
    bubblewrap: Option<PathBuf>,
    /// The programs of the variants that run one: this build, and an earlier one.
    own_programs: BTreeMap<FenceVariant, PathBuf>,
    /// Where they keep what they keep; builds do not share that.
    run_caches: PathBuf,
    /// What bubblewrap mounts read-only: all that the fence of Tier B does.
    mounted: Vec<PathBuf>,
    nothing: File,
}

/// A running command.
#[derive(Debug)]
pub(crate) enum Launched {
    Plain(Child),
    Fenced(Box<Fenced>),
}

/// The standard streams of a command.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// `None`: the null device.
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: Option<File>,
}

impl FenceHost {
    pub(crate) fn prepare(programs: &Programs) -> Result<Self, Error> {
        let scope = programs.work_directory.join("fence-scope");
        std::fs::create_dir_all(&scope).while_doing("making the scope")?;
        let scope = scope.canonicalize()?;
        // Pages of a program that was just built count as dirty until they are on the disk.
        File::open(&programs.ringfence)?.sync_all().while_doing("writing the launcher to the disk")?;
        let launcher = Launcher::with_executable(&programs.ringfence).with_zygote();
        let cold_launcher = Launcher::with_executable(&programs.ringfence);
        let kernel = launcher.kernel();
        let cache_home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let own = OwnDirectory::open(cache_home.as_deref(), home().as_deref())
            .while_doing("opening ringfence's own directory")?;
        let session = SessionDirectory::create(&own).while_doing("making a session's directory")?;
        let caches = session.path().join("caches");
        std::fs::create_dir(&caches).while_doing("making the scope's caches")?;
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let plans = BTreeMap::new();
        let bubblewrap = find_bubblewrap(std::env::var_os("PATH"));
        let own_programs = [
            (FenceVariant::Run, Some(programs.ringfence.clone())),
            (FenceVariant::RunBefore, programs.before.clone()),
        ];
        let own_programs =
            own_programs.into_iter().filter_map(|(variant, it)| Some((variant, it?))).collect();
        let run_caches = programs.work_directory.join("run-caches");
        let mounted = Vec::new();
        Ok(Self {
            launcher,
            cold_launcher,
            kernel,
            plans,
            session,
            own,
            caches,
            scope,
            bubblewrap,
            own_programs,
            run_caches,
            mounted,
            nothing,
        })
    }

    /// Plans the variant; fails if this machine does not offer it.
    pub(crate) fn plan(&mut self, variant: FenceVariant, bench: &Path) -> Result<(), Error> {
        match variant {
            FenceVariant::Unfenced => Ok(()),
            FenceVariant::Run | FenceVariant::RunBefore => {
                std::fs::create_dir_all(self.run_caches.join(variant.name()))?;
                Ok(())
            }
            FenceVariant::Bubblewrap if self.bubblewrap.is_some() => {
                let policy = self.policy(FenceVariant::TierB, bench)?;
                let plan = fence::plan(&policy, &self.kernel).while_doing("planning the fence")?;
                self.mounted = self.mounted_in(&plan)?;
                Ok(())
            }
            FenceVariant::Bubblewrap => Err(Error::new("not installed")),
            _ => {
                let policy = self.policy(variant, bench)?;
                let plan = fence::plan(&policy, &self.kernel).while_doing("planning the fence")?;
                self.plans.insert(variant, plan);
                Ok(())
            }
        }
    }

    fn policy(&self, variant: FenceVariant, bench: &Path) -> Result<Policy, Error> {
        use FenceVariant as V;
        let is_tier_b = matches!(variant, V::TierB | V::TierBCold);
        let own = |path: &Path| VettedDirectory::own(path).while_doing("looking at a directory");
        let home = home();
        Ok(Policy {
            scope: vec![
                fence::vet_scope(&self.scope, home.as_deref(), Some(self.own.path()))
                    .while_doing("looking at the scope")?,
            ],
            read_write: vec![own(&self.session.home())?, own(&self.caches)?],
            staged: None,
            mirrored: Vec::new(),
            read: ReadMode::Strict { readable: vec![bench.to_owned()] },
            deny_read: deny_list(home.as_deref(), self.kernel.is_root),
            hidden: vec![self.own.path().to_owned()],
            protected: Vec::new(),
            git: Vec::new(),
            metadata: fence::MetadataChoice::Writable,
            temp: Temp::Private { directory: self.session.temp(), bytes: TEMP_BYTES },
            network: if is_tier_b { Network::None } else { Network::All },
            unix_sockets: UnixSockets::Deny,
            limits: default_limits(),
            tier: if is_tier_b { TierChoice::B } else { TierChoice::A },
            // Without namespaces, root must be allowed explicitly.
            allowances: BTreeSet::from([Allowance::Root]),
            allow_degraded: BTreeSet::new(),
            require: BTreeSet::new(),
            user: None,
            shared_hardlinks: None,
            read_only: false,
        })
    }

    /// Starts the command and does not wait for its end.
    pub(crate) fn launch(
        &self,
        variant: FenceVariant,
        command: &fence::Command,
        streams: Streams,
    ) -> Result<Launched, Error> {
        if let Some(plan) = self.plans.get(&variant) {
            let is_cold = matches!(variant, FenceVariant::TierACold | FenceVariant::TierBCold);
            let launcher = if is_cold { &self.cold_launcher } else { &self.launcher };
            return self.launch_fenced(launcher, plan, command, &streams);
        }
        let mut process = match (variant, &self.bubblewrap) {
            (FenceVariant::Run | FenceVariant::RunBefore, _) => self.ringfence_run(variant, command)?,
            (FenceVariant::Bubblewrap, Some(program)) => {
                let mut process = std::process::Command::new(program);
                process.args(self.bubblewrap_arguments()).arg("--").arg(&command.program);
                process
            }
            _ => std::process::Command::new(&command.program),
        };
        // With neither a working directory nor a hook, the standard library uses `posix_spawn`.
        process.args(&command.arguments);
        if let Some(stdin) = streams.stdin {
            process.stdin(Stdio::from(stdin));
        }
        if let Some(stdout) = streams.stdout {
            process.stdout(Stdio::from(stdout));
        }
        process.spawn().map(Launched::Plain).while_doing("starting the command")
    }

    /// `ringfence run` with options that every build has understood since it fences, and with the policy of the
    /// other variants as far as they can say it.
    fn ringfence_run(
        &self,
        variant: FenceVariant,
        command: &fence::Command,
    ) -> Result<std::process::Command, Error> {
        const POLICY: &str = "run --tier b --net none --read-mode strict --";
        let program = self.own_programs.get(&variant).ok_or_else(|| Error::new("no such build"))?;
        let mut process = std::process::Command::new(program);
        process.args(POLICY.split_ascii_whitespace()).arg(&command.program).current_dir(&self.scope);
        process.env("XDG_CACHE_HOME", self.run_caches.join(variant.name()));
        process.stdin(Stdio::null()).stderr(Stdio::null());
        Ok(process)
    }

    fn launch_fenced(
        &self,
        launcher: &Launcher,
        plan: &Plan,
        command: &fence::Command,
        streams: &Streams,
    ) -> Result<Launched, Error> {
        let nothing = &self.nothing;
        let stdio = fence::Stdio {
            stdin: streams.stdin.as_ref().unwrap_or(nothing).as_fd(),
            stdout: streams.stdout.as_ref().unwrap_or(nothing).as_fd(),
            stderr: nothing.as_fd(),
        };
        let fenced = launcher.launch(plan, command, stdio, self.own.path());
        fenced.map(|fenced| Launched::Fenced(Box::new(fenced))).while_doing("launching")
    }

    /// The places of the host's files that a fence has mounts for, beside the scope.
    fn mounted_in(&self, plan: &Plan) -> Result<Vec<PathBuf>, Error> {
        const MADE_BY_BUBBLEWRAP: [&str; 4] = ["/proc", "/dev", "/tmp", "/var/tmp"];
        let (mut reader, writer) = std::io::pipe()?;
        let command = self.command(Path::new("/bin/cat"), &["/proc/self/mountinfo".into()]);
        let streams = Streams { stdin: None, stdout: Some(File::from(OwnedFd::from(writer))) };
        let launched = self.launch_fenced(&self.cold_launcher, plan, &command, &streams)?;
        drop(streams);
        let mut table = String::new();
        reader.read_to_string(&mut table)?;
        launched.wait()?;
        let places = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let is_made = |path: &PathBuf| MADE_BY_BUBBLEWRAP.iter().any(|made| path.starts_with(made));
        let is_root = |path: &PathBuf| path == Path::new("/");
        Ok(places.filter(|path| !is_made(path) && !is_root(path) && *path != self.scope).collect())
    }

    /// Arguments that give bubblewrap the same namespaces and the same mounts.
    fn bubblewrap_arguments(&self) -> Vec<&OsStr> {
        const SAME_NAMESPACES: &str = "--unshare-all --die-with-parent --dev /dev --proc /proc --tmpfs /tmp \
             --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64";
        let scope = self.scope.as_os_str();
        let scoped = ["--bind".as_ref(), scope, scope, "--chdir".as_ref(), scope];
        let mounted =
            self.mounted.iter().flat_map(|path| ["--ro-bind".as_ref(), path.as_os_str(), path.as_os_str()]);
        SAME_NAMESPACES.split_ascii_whitespace().map(OsStr::new).chain(mounted).chain(scoped).collect()
    }

    /// The command as `ringfence run` would hand it over.
    pub(crate) fn command(&self, program: &Path, arguments: &[OsString]) -> fence::Command {
        let parent: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let mut variables = environment::passed_on(parent.clone());
        variables.extend(environment::toolchains(&parent, home().as_deref()));
        let temp = self.session.temp();
        let places = OwnPlaces { home: &self.session.home(), caches: &self.caches, temp: Some(&temp) };
        variables.extend(environment::own_places(places, Tier::B));
        fence::Command {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            environment: variables.into_iter().collect(),
            directory: self.scope.clone(),
            confinement_variable: None,
            files: None,
        }
    }

    pub(crate) fn scope(&self) -> &Path {
        &self.scope
    }

    /// The kernel features that the fence found, in words.
    pub(crate) fn described(&self) -> String {
        let groups = self.kernel.limits.version.map_or("no control groups", fence::CgroupVersion::mechanism);
        let user = if self.kernel.is_root { "root" } else { "a plain user" };
        format!("Landlock {}, {groups}, as {user}", self.kernel.landlock)
    }

    /// Removes the session's directory, and the caches unless something was written to them.
    pub(crate) fn finish(self) {
        let _ = std::fs::remove_dir(&self.caches);
        let _ = self.session.remove();
    }
}

impl Launched {
    /// Waits for the end and fails unless the command succeeded.
    pub(crate) fn wait(self) -> Result<(), Error> {
        let code = match self {
            Self::Plain(mut child) => child.wait().while_doing("waiting")?.code(),
            Self::Fenced(mut fenced) => fenced.wait().while_doing("waiting")?.code,
        };
        if code == Some(0) { Ok(()) } else { Err(Error::new("the command did not end well")) }
    }

    /// The process that was started, which in a fence is the supervisor.
    pub(crate) fn process_id(&self) -> u32 {
        match self {
            Self::Plain(child) => child.id(),
            Self::Fenced(fenced) => fenced.supervisor().as_raw_nonzero().get().unsigned_abs(),
        }
    }
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

fn deny_list(home: Option<&Path>, is_root: bool) -> Vec<DeniedPath> {
    let mut denied: Vec<DeniedPath> =
        fence::sensitive_paths(home, is_root).iter().flat_map(|path| DeniedPath::resolve(path)).collect();
    denied.sort_by(|a, b| a.path.cmp(&b.path));
    denied.dedup_by(|a, b| a.path == b.path);
    denied
}

pub(crate) fn default_limits() -> Limits {
    let default = |value| Limit { value, origin: LimitOrigin::Default };
    Limits {
        memory: three_quarters_of_the_memory().map(default),
        processes: Some(default(PROCESSES)),
        ..Limits::default()
    }
}

fn three_quarters_of_the_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024 / 4 * 3)
}

fn find_bubblewrap(search_path: Option<OsString>) -> Option<PathBuf> {
    std::env::split_paths(&search_path?).map(|directory| directory.join("bwrap")).find(|file| file.is_file())
}
