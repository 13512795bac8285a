//! The launcher process: this binary, started again to put the fence around itself and then to become the command. It
//! has one thread and no runtime. Every step is checked; if one fails, it is reported and nothing runs.

mod canaries;
mod filter;
mod mounts;
mod namespaces;
mod overlay;
mod probe;
mod process_attributes;
mod reads;
mod ruleset;
mod supervisor;
mod sys;
mod zygote;

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;

use rustix::process::Pid;

use crate::ProtectionName;
use crate::launch_request::{
    EVENTS_FD, Event, LAUNCH_ARGUMENT, LaunchRequest, PROBE_ARGUMENT, REQUEST_FD, RequestedCommand,
    ZYGOTE_ARGUMENT,
};
use crate::overlay::OVERLAY_ARGUMENT;
use crate::policy::Tier;
use crate::raw_path::Raw;

#[cfg(any(test, fuzzing))]
pub use mounts::oracle;
pub(crate) use probe::probe_namespaces;

/// The exit code of a launch that was refused.
pub(crate) const REFUSED: i32 = 125;

/// Becomes a launcher if this process was started as one, and then does not return. Call it first in `main`.
pub fn run_if_launcher() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(word) if word == LAUNCH_ARGUMENT => launch(),
        Some(word) if word == ZYGOTE_ARGUMENT => zygote::serve(),
        Some(word) if word == PROBE_ARGUMENT => probe::answer(),
        Some(word) if word == OVERLAY_ARGUMENT => overlay::hold(),
        _ => {}
    }
}

/// A step that failed.
#[derive(Debug)]
pub(crate) struct StepError {
    pub(crate) step: &'static str,
    pub(crate) reason: String,
}

impl StepError {
    fn new(step: &'static str, reason: impl fmt::Display) -> Self {
        Self { step, reason: reason.to_string() }
    }
}

/// Names the step of an error.
trait InStep<T> {
    fn step(self, step: &'static str) -> Result<T, StepError>;
}

impl<T, E: fmt::Display> InStep<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, StepError> {
        self.map_err(|error| StepError::new(step, error))
    }
}

fn launch() -> ! {
    let refusal = match read_request().and_then(|request| prepare(&request)) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    refuse(&refusal)
}

/// Goes on with a request in namespaces that were made ahead. `pid` is what the parent calls this process.
fn launch_in_namespaces(pid: i32, ahead: Option<mounts::SystemRoot>) -> ! {
    report(&Event::Supervisor { pid });
    let refusal = match read_request().and_then(|request| prepare_in_namespaces(&request, ahead)) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    refuse(&refusal)
}

fn prepare_in_namespaces(
    request: &LaunchRequest,
    ahead: Option<mounts::SystemRoot>,
) -> Result<Infallible, StepError> {
    let limited = process_attributes::join_cgroups(request)?;
    process_attributes::set_limits(&request.steps.limits)?;
    namespaces::finish_ahead(request)?;
    process_attributes::limit_processes(&request.steps.limits)?;
    become_init(request, limited, ahead)
}

fn refuse(error: &StepError) -> ! {
    // An event has to fit into one write.
    let reason: String = error.reason.chars().take(500).collect();
    report(&Event::Refused { step: error.step.to_owned(), reason });
    sys::exit(REFUSED)
}

/// Sends an event to the parent. A parent that does not read has ended, which the lifeline shows too.
fn report(event: &Event) {
    let Ok(mut line) = serde_json::to_vec(event) else { return };
    line.push(b'\n');
    // SAFETY: the descriptor was given to this process for events, and nothing else closes it.
    let mut events = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(EVENTS_FD) });
    let _ = events.write_all(&line);
}

fn read_request() -> Result<LaunchRequest, StepError> {
    // SAFETY: the descriptor was given to this process for the request and is used here alone.
    let mut file = unsafe { File::from_raw_fd(REQUEST_FD) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).step("request")?;
    serde_json::from_slice(&bytes).step("request")
}

/// Takes the steps of a launch in order. Later steps rely on earlier ones.
fn prepare(request: &LaunchRequest) -> Result<Infallible, StepError> {
    process_attributes::close_surplus(request)?;
    process_attributes::leave_terminal_and_signals()?;
    process_attributes::check_parent(request)?;
    let limited = process_attributes::join_cgroups(request)?;
    process_attributes::set_limits(&request.steps.limits)?;
    match request.steps.tier {
        Tier::A => {
            process_attributes::limit_processes(&request.steps.limits)?;
            supervise(request, limited)
        }
        Tier::B => {
            // Only in a user namespace of its own does this limit count the command's processes alone.
            namespaces::enter(request)?;
            process_attributes::limit_processes(&request.steps.limits)?;
            become_init(request, limited, None)
        }
    }
}

/// Tier A: this process stays outside the fence as the supervisor; its child goes in.
fn supervise(request: &LaunchRequest, limited: Vec<ProtectionName>) -> Result<Infallible, StepError> {
    // A supervisor needs no capabilities to watch its own children, and the child inherits that it has none.
    process_attributes::drop_capabilities(None)?;
    process_attributes::forbid_new_privileges()?;
    let supervisor = supervisor::Supervisor::prepare(supervisor::Role::Outside, &[])?;
    match supervisor::fork()? {
        supervisor::Forked::Parent { command, failure } => {
            process_attributes::close_passed_files(request);
            match supervisor::read_failure(failure) {
                None => supervisor.watch(command),
                Some(errno) => fail_to_execute(errno),
            }
        }
        supervisor::Forked::Child { failure } => {
            let confined = process_attributes::die_with_parent()
                .and_then(|()| confine(request, limited))
                .inspect(|shown| confirm(request, shown));
            match confined {
                Ok(shown) => execute(request, &shown, failure),
                Err(error) => refuse(&error),
            }
        }
    }
}

/// Tier B: this process is the first of its pid namespace. It goes into the fence itself and then starts the
/// command, which inherits everything.
fn become_init(
    request: &LaunchRequest,
    limited: Vec<ProtectionName>,
    ahead: Option<mounts::SystemRoot>,
) -> Result<Infallible, StepError> {
    mounts::enter_own_root(request, ahead)?;
    let supervisor = supervisor::Supervisor::prepare(supervisor::Role::Init, request.steps.kept())?;
    let shown = confine(request, limited)?;
    confirm(request, &shown);
    let command = request.command.as_ref().ok_or_else(|| StepError::new("command", "none is given"))?;
    // This process makes no more files, so it can have the command's umask.
    process_attributes::set_umask(request.umask);
    match CommandText::of(command, &shown).and_then(|text| text.spawn()) {
        Ok(command) => {
            process_attributes::close_passed_files(request);
            supervisor.watch(command)
        }
        Err(errno) => fail_to_execute(errno),
    }
}

/// Puts all layers around this process. Returns the protections that canaries have confirmed, with those that are known
/// to hold already.
fn confine(
    request: &LaunchRequest,
    mut shown: Vec<ProtectionName>,
) -> Result<Vec<ProtectionName>, StepError> {
    enter_directory(request)?;
    process_attributes::limit_open_files(&request.steps.limits)?;
    process_attributes::new_keyring()?;
    process_attributes::close_on_exec(request)?;
    process_attributes::drop_capabilities(request.steps.user)?;
    process_attributes::check_access(&request.steps)?;
    process_attributes::forbid_new_privileges()?;
    ruleset::restrict(&request.steps.landlock)?;
    shown.extend(canaries::after_landlock(request)?);
    filter::install(&request.steps.seccomp)?;
    shown.extend(canaries::after_seccomp(request)?);
    Ok(shown)
}

fn enter_directory(request: &LaunchRequest) -> Result<(), StepError> {
    match &request.command {
        Some(command) => std::env::set_current_dir(&command.directory).step("working directory"),
        None => std::env::set_current_dir("/").step("working directory"),
    }
}

fn confirm(request: &LaunchRequest, shown: &[ProtectionName]) {
    report(&Event::Confined { shown: shown.to_vec() });
    // A self-test ends here.
    if request.command.is_none() {
        report(&Event::Ended { code: Some(0), signal: None });
        sys::exit(0);
    }
}

/// Becomes the command, or reports to the supervisor why it could not.
fn execute(request: &LaunchRequest, shown: &[ProtectionName], failure: File) -> ! {
    let become_it = |command: &RequestedCommand| {
        let text = CommandText::of(command, shown)?;
        process_attributes::restore_for_command(request.umask);
        Err::<Infallible, i32>(sys::exec(&text.program, &text.arguments, &text.environment))
    };
    let errno = request.command.as_ref().map_or(Some(libc::ENOENT), |command| become_it(command).err());
    supervisor::tell_failure(failure, errno.unwrap_or(libc::EIO));
    sys::exit(REFUSED)
}

/// The fence is up, but there is no command to put into it.
fn fail_to_execute(errno: i32) -> ! {
    report(&Event::ExecFailed { errno });
    sys::exit(if errno == libc::ENOENT { 127 } else { 126 })
}

/// A command in the form that `execve` takes.
struct CommandText {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl CommandText {
    /// `shown`: what the command is told that holds around it.
    fn of(command: &RequestedCommand, shown: &[ProtectionName]) -> Result<Self, i32> {
        let text = |string: OsString| CString::new(string.into_vec()).map_err(|_| libc::EINVAL);
        let program = text(command.program.clone().into_os_string())?;
        let raw = |raw: &Raw| OsString::from(raw.clone());
        let mut arguments = vec![program.clone()];
        for argument in &command.arguments {
            arguments.push(text(raw(argument))?);
        }
        let mut environment = Vec::with_capacity(command.environment.len());
        for (name, value) in &command.environment {
            let mut variable = raw(name);
            variable.push("=");
            variable.push(raw(value));
            environment.push(text(variable)?);
        }
        if let Some(report) = &command.confinement {
            let mut confinement = report.confinement.clone();
            confinement.confirm(shown);
            let mut variable = raw(&report.variable);
            variable.push("=");
            variable.push(confinement.to_json().to_string());
            environment.push(text(variable)?);
        }
        Ok(Self { program, arguments, environment })
    }

    fn spawn(&self) -> Result<Pid, i32> {
        crate::spawn::spawn_command(&self.program, &self.arguments, &self.environment)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }
}
