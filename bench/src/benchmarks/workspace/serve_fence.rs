//! Runs another program in the fence of a built-in server's session. The fence is planned once, so that only the
//! launch is timed.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fence::{
    CacheChoice, Command, FenceSettings, FenceSetup, FencedCommand, HardlinkChoice, HostEnvironment,
    HostFacts, Launcher, Network, Plan, ReadChoice, ScopeChoice, Stdio, TierChoice, UnixSockets,
};

use crate::benchmarks::fence::launch::{TEMP_BYTES, default_limits};
use crate::error::{Error, WhileDoing};
use crate::programs::Programs;

#[derive(Debug)]
pub(crate) struct ServeFence {
    launcher: Launcher,
    setup: FenceSetup,
    plan: Plan,
    command: Command,
    host_environment: HostEnvironment,
    nothing: File,
}

impl ServeFence {
    /// `program` must lie in the scope.
    pub(crate) fn prepare(programs: &Programs, scope: &Path, program: PathBuf) -> Result<Self, Error> {
        let settings = settings_of_serve();
        let host_environment = HostEnvironment::of_this_process().while_doing("looking around")?;
        let launcher = Launcher::with_executable(&programs.ringfence).with_zygote();
        let host_facts = HostFacts::new(&settings, &programs.ringfence, &host_environment);
        let directories = [scope.to_owned()];
        let session = host_environment.new_session().while_doing("making a session's directory")?;
        let setup = FenceSetup::in_session(
            Arc::new(session),
            &host_facts,
            &settings,
            ScopeChoice::Directories(&directories),
            CacheChoice::Private,
            &host_environment,
        )
        .while_doing("arranging the fence")?;
        let plan = setup.plan(&launcher).while_doing("planning the fence")?;
        eprintln!("the fence of a session: Tier {:?}", plan.tier);
        let command = FencedCommand { program, ..FencedCommand::default() };
        let command = setup.with_environment(&plan, command).while_doing("the environment")?;
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Self { launcher, setup, plan, command, host_environment, nothing })
    }

    /// Launches the program and waits for its end.
    pub(crate) fn launch_and_wait(&self) -> Result<(), Error> {
        let nothing = self.nothing.as_fd();
        let stdio = Stdio { stdin: nothing, stdout: nothing, stderr: nothing };
        let outside = self.host_environment.outside();
        let mut fenced =
            self.launcher.launch(&self.plan, &self.command, stdio, outside).while_doing("launching")?;
        let code = fenced.wait().while_doing("waiting")?.code;
        if code == Some(0) { Ok(()) } else { Err(Error::new("the static program did not end well")) }
    }

    /// Removes the session's directory.
    pub(crate) fn finish(self) {
        let _ = self.setup.session.remove();
    }
}

/// The defaults of `ringfence serve` with the built-in server.
fn settings_of_serve() -> FenceSettings {
    FenceSettings {
        write: Vec::new(),
        read: Vec::new(),
        read_mode: ReadChoice::Strict,
        deny_read: Vec::new(),
        allow_sensitive_reads: Vec::new(),
        temp_bytes: Some(TEMP_BYTES),
        network: Network::All,
        unix_sockets: UnixSockets::Deny,
        allowances: BTreeSet::new(),
        limits: default_limits(),
        tier: TierChoice::Auto,
        allow_degraded: BTreeSet::new(),
        require: BTreeSet::new(),
        hardlinks: HardlinkChoice::Warn,
        git: fence::GitChoice { leading_back: true, named: Vec::new() },
        metadata: fence::MetadataChoice::Writable,
        read_only: false,
        kept_caches: None,
        all_programs: true,
        user: None,
    }
}
