//! The launcher: a process of this same binary that puts the fence around itself and then becomes the
//! command. It has one thread and no runtime. Every step is checked; a step that fails is reported, and
//! nothing runs.

mod canaries;
mod filter;
mod hygiene;
mod mounts;
mod namespaces;
mod probe;
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
use crate::order::{
    EVENTS_FD, Event, LAUNCH_ARGUMENT, ORDER_FD, Order, OrderedCommand, PROBE_ARGUMENT, ZYGOTE_ARGUMENT,
};
use crate::policy::Tier;
use crate::raw_path::Raw;

pub(crate) use probe::probe_namespaces;

/// The exit code of a launch that was refused.
pub(crate) const REFUSED: i32 = 125;

/// Becomes a launcher if this process was started as one. To be called first in `main`.
pub fn run_if_launcher() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(word) if word == LAUNCH_ARGUMENT => launch(),
        Some(word) if word == ZYGOTE_ARGUMENT => zygote::tend(),
        Some(word) if word == PROBE_ARGUMENT => probe::answer(),
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
    let refusal = match read_order().and_then(|order| prepare(&order)) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    refuse(&refusal)
}

fn refuse(error: &StepError) -> ! {
    // An event has to fit into one write.
    let reason: String = error.reason.chars().take(500).collect();
    report(&Event::Refused { step: error.step.to_owned(), reason });
    sys::exit(REFUSED)
}

/// Tells the parent. If it does not listen, it is gone, and the lifeline says the same.
fn report(event: &Event) {
    let Ok(mut line) = serde_json::to_vec(event) else { return };
    line.push(b'\n');
    // SAFETY: the descriptor was given to this process for events, and nothing else closes it.
    let mut events = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(EVENTS_FD) });
    let _ = events.write_all(&line);
}

fn read_order() -> Result<Order, StepError> {
    // SAFETY: the descriptor was given to this process for the order and is used here alone.
    let mut file = unsafe { File::from_raw_fd(ORDER_FD) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).step("order")?;
    serde_json::from_slice(&bytes).step("order")
}

/// The order of the steps. What comes later relies on what came before.
fn prepare(order: &Order) -> Result<Infallible, StepError> {
    hygiene::close_surplus(order.cgroups)?;
    hygiene::leave_terminal_and_signals(order)?;
    hygiene::join_cgroups(order.cgroups)?;
    hygiene::set_limits(&order.steps.limits)?;
    match order.steps.tier {
        Tier::A => {
            hygiene::limit_processes(&order.steps.limits)?;
            supervise(order)
        }
        Tier::B => {
            // Only in a user namespace of its own does this limit count the command's processes alone.
            namespaces::enter(order)?;
            hygiene::limit_processes(&order.steps.limits)?;
            become_init(order)
        }
    }
}

/// Tier A: this process stays outside the fence as the supervisor; its child goes in.
fn supervise(order: &Order) -> Result<Infallible, StepError> {
    // A supervisor needs no rights to watch its own children, and the child inherits that it has none.
    hygiene::drop_capabilities()?;
    hygiene::forbid_new_privileges()?;
    let supervisor = supervisor::Supervisor::prepare(supervisor::Role::Outside)?;
    match supervisor::fork()? {
        supervisor::Forked::Parent { command, failure } => match supervisor::read_failure(failure) {
            None => supervisor.watch(command),
            Some(errno) => fail_to_execute(errno),
        },
        supervisor::Forked::Child { failure } => {
            let confined =
                hygiene::die_with_parent().and_then(|()| confine(order)).map(|shown| confirm(order, shown));
            match confined {
                Ok(()) => execute(order, failure),
                Err(error) => refuse(&error),
            }
        }
    }
}

/// Tier B: this process is the first of its pid namespace. It goes into the fence itself and then starts the
/// command, which inherits everything.
fn become_init(order: &Order) -> Result<Infallible, StepError> {
    mounts::arrange(&order.steps)?;
    let supervisor = supervisor::Supervisor::prepare(supervisor::Role::Init)?;
    let shown = confine(order)?;
    confirm(order, shown);
    let command = order.command.as_ref().ok_or_else(|| StepError::new("command", "none is given"))?;
    // This process makes no files any more, so it can have the command's mask.
    hygiene::set_umask(order.umask);
    match CommandText::of(command).and_then(|text| text.spawn()) {
        Ok(command) => supervisor.watch(command),
        Err(errno) => fail_to_execute(errno),
    }
}

/// The layers that a process puts around itself, and what trying them has shown.
fn confine(order: &Order) -> Result<Vec<ProtectionName>, StepError> {
    enter_directory(order)?;
    hygiene::new_keyring()?;
    hygiene::close_on_exec()?;
    hygiene::drop_capabilities()?;
    hygiene::forbid_new_privileges()?;
    ruleset::restrict(&order.steps.landlock)?;
    let mut shown = canaries::after_landlock(order)?;
    filter::install(&order.steps.seccomp)?;
    shown.extend(canaries::after_seccomp(order)?);
    Ok(shown)
}

fn enter_directory(order: &Order) -> Result<(), StepError> {
    match &order.command {
        Some(command) => std::env::set_current_dir(&command.directory).step("working directory"),
        None => std::env::set_current_dir("/").step("working directory"),
    }
}

fn confirm(order: &Order, shown: Vec<ProtectionName>) {
    report(&Event::Confined { shown });
    // Only the fence was to be tried.
    if order.command.is_none() {
        report(&Event::Ended { code: Some(0), signal: None });
        sys::exit(0);
    }
}

/// Becomes the command. On failure the supervisor is told why.
fn execute(order: &Order, failure: File) -> ! {
    let become_it = |command: &OrderedCommand| {
        let text = CommandText::of(command)?;
        hygiene::restore_for_command(order.umask);
        Err::<Infallible, i32>(sys::exec(&text.program, &text.arguments, &text.environment))
    };
    let errno = order.command.as_ref().map_or(Some(libc::ENOENT), |command| become_it(command).err());
    supervisor::tell_failure(failure, errno.unwrap_or(libc::EIO));
    sys::exit(REFUSED)
}

/// The fence is up, but there is no command to put into it.
fn fail_to_execute(errno: i32) -> ! {
    report(&Event::ExecFailed { errno });
    sys::exit(if errno == libc::ENOENT { 127 } else { 126 })
}

/// A command as the kernel takes it.
struct CommandText {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl CommandText {
    fn of(command: &OrderedCommand) -> Result<Self, i32> {
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
        Ok(Self { program, arguments, environment })
    }

    fn spawn(&self) -> Result<Pid, i32> {
        crate::spawn::spawn_command(&self.program, &self.arguments, &self.environment)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }
}
