//! Follows one launch: reads what the launcher reports until the command runs, or never will.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::events::Events;
use super::fenced::{Ending, Fenced};
use crate::confinement::Confinement;
use crate::error::{LAUNCH_TIMEOUT, LaunchError};
use crate::fd_passing;
use crate::launch_request::Event;
use crate::network::Listeners;
use crate::plan::Plan;
use crate::policy::Tier;
use crate::supervisor_registry::{Launching, Registration, SUPERVISORS};

/// The parent's ends of the channels that a launcher was started with.
pub(super) struct Channels {
    pub(super) launcher: Pid,
    /// Held until the supervisor is registered.
    pub(super) launching: Launching,
    pub(super) events: Events,
    pub(super) lifeline: OwnedFd,
    pub(super) listeners: Option<OwnedFd>,
}

impl Channels {
    /// Reads events until the command runs, or never will. `own` is ringfence's own directory.
    pub(super) fn follow(mut self, plan: &Plan, program: &Path, own: &Path) -> Result<Fenced, LaunchError> {
        let mut supervisor = (plan.tier == Tier::A).then_some(self.launcher);
        let mut registration = supervisor.map(|supervisor| SUPERVISORS.enter(supervisor, own));
        let mut confinement = plan.confinement.clone();
        let mut outcome = None;
        // The supervisor's events may arrive before the launcher's own event that names the supervisor.
        while outcome.is_none() || supervisor.is_none() {
            let news = match self.events.next(Some(LAUNCH_TIMEOUT)) {
                Ok(Some(Event::Supervisor { pid })) => {
                    supervisor = Pid::from_raw(pid);
                    registration = supervisor.map(|supervisor| SUPERVISORS.enter(supervisor, own));
                    continue;
                }
                Ok(Some(Event::Confined { shown })) => {
                    confinement.confirm(&shown);
                    continue;
                }
                Ok(Some(event)) => outcome_of(event, program),
                Ok(None) => Err(LaunchError::Lost),
                Err(error) => Err(error),
            };
            let is_last = matches!(news, Err(LaunchError::Lost | LaunchError::Stuck | LaunchError::Io(_)));
            outcome = Some(later(outcome, news));
            if is_last {
                break;
            }
        }
        if supervisor != Some(self.launcher) {
            // The launcher has handed over to the supervisor, has given up, or is stuck.
            if supervisor.is_none() && matches!(outcome, Some(Err(LaunchError::Stuck))) {
                let _ = rustix::process::kill_process(self.launcher, Signal::KILL);
            }
            let _ = rustix::process::waitpid(Some(self.launcher), WaitOptions::empty());
        }
        match (outcome.unwrap_or(Err(LaunchError::Lost)), supervisor.zip(registration)) {
            (Ok(ending), Some((supervisor, registration))) => {
                self.into_fenced(supervisor, registration, confinement, ending)
            }
            (Err(error), Some((supervisor, registration))) => {
                self.abandon(supervisor, &error);
                registration.reaped();
                Err(error)
            }
            (Ok(_), None) => Err(LaunchError::Lost),
            (Err(error), None) => Err(error),
        }
    }

    fn into_fenced(
        self,
        supervisor: Pid,
        registration: Registration,
        confinement: Confinement,
        ending: Option<Ending>,
    ) -> Result<Fenced, LaunchError> {
        let listeners = self.listeners.as_ref().map(receive_listeners).transpose()?.unwrap_or_default();
        drop(self.launching);
        Ok(Fenced {
            supervisor,
            registration: Some(registration),
            pidfd: rustix::process::pidfd_open(supervisor, PidfdFlags::empty())?,
            events: self.events,
            lifeline: Some(self.lifeline),
            confinement,
            listeners,
            leaf: None,
            ending,
        })
    }

    /// Ends a supervisor whose command does not run.
    fn abandon(self, supervisor: Pid, error: &LaunchError) {
        drop(self.lifeline);
        if matches!(error, LaunchError::Stuck) {
            let _ = rustix::process::kill_process(supervisor, Signal::KILL);
        }
        let _ = rustix::process::waitpid(Some(supervisor), WaitOptions::empty());
    }
}

/// The first outcome decides, except that a command that started may have ended since.
fn later(
    outcome: Option<Result<Option<Ending>, LaunchError>>,
    news: Result<Option<Ending>, LaunchError>,
) -> Result<Option<Ending>, LaunchError> {
    match (outcome, news) {
        (Some(Ok(None)), Ok(ended)) => Ok(ended),
        (Some(outcome), _) => outcome,
        (None, news) => news,
    }
}

/// What an event says about the launch. A self-test ends without having started.
fn outcome_of(event: Event, program: &Path) -> Result<Option<Ending>, LaunchError> {
    match event {
        Event::Ended { code, signal } => Ok(Some(Ending { code, signal, limit: None, mount_lost: false })),
        Event::Refused { step, reason } => Err(LaunchError::Refused { step, reason }),
        Event::ExecFailed { errno } => {
            let error = io::Error::from_raw_os_error(errno);
            Err(LaunchError::Exec { program: program.to_owned(), error })
        }
        Event::Started | Event::Supervisor { .. } | Event::Confined { .. } | Event::MountLost { .. } => {
            Ok(None)
        }
    }
}

fn receive_listeners(channel: &OwnedFd) -> Result<Listeners, LaunchError> {
    let mut text = vec![0; 16 * 1024];
    let (length, descriptors) = fd_passing::receive(channel, &mut text, RecvFlags::DONTWAIT)?;
    let names: Vec<String> = serde_json::from_slice(&text[..length]).map_err(|_| LaunchError::Lost)?;
    let mut listeners = Listeners::default();
    for (name, descriptor) in names.iter().zip(descriptors) {
        match name.as_str() {
            "proxy" => listeners.proxy = Some(descriptor.into()),
            "dns" => listeners.dns = Some(descriptor.into()),
            port => {
                let port = port.parse().map_err(|_| LaunchError::Lost)?;
                listeners.mirrored.push((port, descriptor.into()));
            }
        }
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    /// Follows a launch in which the events arrive in this order.
    fn follow(events: &[Event]) -> Result<Fenced, LaunchError> {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (_, lifeline) = rustix::pipe::pipe().unwrap();
        let mut writer = File::from(writer);
        for event in events {
            writeln!(writer, "{}", serde_json::to_string(event).unwrap()).unwrap();
        }
        drop(writer);
        let channels = Channels {
            launcher: child(),
            launching: SUPERVISORS.launching(),
            events: Events::new(reader.into()),
            lifeline,
            listeners: None,
        };
        let plan = crate::plan::tests::tier_b();
        channels.follow(&plan, Path::new("/bin/true"), &crate::test_directory::directory("follow"))
    }

    /// A process that ends at once and waits to be reaped.
    fn child() -> Pid {
        Pid::from_child(&std::process::Command::new("true").spawn().unwrap())
    }

    #[test]
    fn a_command_that_ends_before_its_supervisor_is_known_has_ended_all_the_same() {
        let supervisor = child().as_raw_nonzero().get();
        let ended = Event::Ended { code: Some(7), signal: None };
        let mut fenced = follow(&[Event::Started, ended, Event::Supervisor { pid: supervisor }]).unwrap();
        assert_eq!(fenced.wait().unwrap().code, Some(7));
    }

    #[test]
    fn a_refusal_counts_whoever_says_it() {
        let refused = || Event::Refused { step: "x".to_owned(), reason: "y".to_owned() };
        let supervisor = Event::Supervisor { pid: child().as_raw_nonzero().get() };
        assert!(matches!(follow(&[refused(), supervisor]), Err(LaunchError::Refused { .. })));
        assert!(matches!(follow(&[refused()]), Err(LaunchError::Refused { .. })));
        assert!(matches!(follow(&[]), Err(LaunchError::Lost)));
    }
}
