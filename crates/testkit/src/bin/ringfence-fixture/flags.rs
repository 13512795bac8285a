//! The command line of the fixture: how it misbehaves from the start, and which role this process has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Server,
    /// A child that only stays alive.
    Linger,
    /// A session leader of its own that reports its pid and stays alive.
    Daemon,
    /// Starts a `Daemon` and exits, so that the daemon is orphaned.
    DaemonStarter,
}

#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) role: Role,
    pub(crate) ignore_term: bool,
    pub(crate) exit_at_start: Option<u8>,
    pub(crate) stderr_at_start: Option<String>,
    pub(crate) crash_first: Option<(PathBuf, usize)>,
    pub(crate) start_delay: Option<Duration>,
    pub(crate) version_cap: Option<String>,
    pub(crate) no_initialize_answer: bool,
    pub(crate) start_log: Option<PathBuf>,
    pub(crate) message_log: Option<PathBuf>,
    pub(crate) life_log: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut flags = Self::default();
        while let Some(argument) = arguments.next() {
            let name = argument.to_string_lossy().into_owned();
            flags.set(&name, &mut arguments)?;
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, rest: &mut impl Iterator<Item = OsString>) -> Result<(), String> {
        match name {
            "--linger" => self.role = Role::Linger,
            "--daemon" => self.role = Role::Daemon,
            "--daemon-starter" => self.role = Role::DaemonStarter,
            "--ignore-term" => self.ignore_term = true,
            "--no-initialize-answer" => self.no_initialize_answer = true,
            "--exit-at-start" => self.exit_at_start = Some(number(name, rest)?),
            "--stderr" => self.stderr_at_start = Some(text(name, rest)?),
            "--crash-first-n" => self.crash_first = Some((path(name, rest)?, number(name, rest)?)),
            "--start-delay-ms" => self.start_delay = Some(Duration::from_millis(number(name, rest)?)),
            "--version-cap" => self.version_cap = Some(text(name, rest)?),
            "--start-log" => self.start_log = Some(path(name, rest)?),
            "--life-log" => self.life_log = Some(path(name, rest)?),
            "--message-log" => self.message_log = Some(path(name, rest)?),
            _ => return Err(format!("unknown flag {name}")),
        }
        Ok(())
    }
}

fn value(flag: &str, rest: &mut impl Iterator<Item = OsString>) -> Result<OsString, String> {
    rest.next().ok_or_else(|| format!("{flag} lacks a value"))
}

fn path(flag: &str, rest: &mut impl Iterator<Item = OsString>) -> Result<PathBuf, String> {
    value(flag, rest).map(PathBuf::from)
}

fn text(flag: &str, rest: &mut impl Iterator<Item = OsString>) -> Result<String, String> {
    Ok(value(flag, rest)?.to_string_lossy().into_owned())
}

fn number<Number: std::str::FromStr>(
    flag: &str,
    rest: &mut impl Iterator<Item = OsString>,
) -> Result<Number, String> {
    let given = text(flag, rest)?;
    given.parse().map_err(|_| format!("{flag}: {given} is not a number it takes"))
}
