//! What `--help` shows of the command line: the options that matter, or with `--help-all` every one, in groups. And
//! what errors of the command line advise: the command that was meant, and the `--` that was forgotten.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches};

use crate::arguments::Arguments;

const HELP_ALL: &str = "--help-all";

/// Commands with many options, and the options that their `--help` shows.
const SHORT: &[(&str, &[&str])] = &[
    (
        "serve",
        &[
            "port",
            "host",
            "config",
            "scope",
            "allow_scope",
            "env",
            "net",
            "read_only",
            "auth_token_file",
            "audit_log",
        ],
    ),
    (
        "stdio",
        &[
            "config",
            "scope",
            "allow_scope",
            "env",
            "net",
            "read_only",
            "allow_metadata",
            "timeout",
            "audit_log",
        ],
    ),
    (
        "connect",
        &["token_file", "ca", "session_file", "config", "scope", "net", "read_only", "timeout", "audit_log"],
    ),
    ("run", FENCED_COMMAND),
    ("sandboxed_shell", FENCED_COMMAND),
    ("doctor", &["scope", "net", "read_mode", "memory", "tier", "require", "json"]),
];

/// `run` has no `working_directory`.
const FENCED_COMMAND: &[&str] = &[
    "working_directory",
    "scope",
    "write",
    "read",
    "read_only",
    "net",
    "allow_host",
    "env",
    "memory",
    "report",
];

/// The groups of `--help-all`. Options that are in none keep the heading that they have.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Where sessions work",
        &[
            "scope",
            "allow_scope",
            "no_default_scope",
            "workspace",
            "roots",
            "on_roots_change",
            "scope_timeout",
            "session_workspace",
            "stage",
            "stage_method",
            "allow_apply",
        ],
    ),
    (
        "Files of the fence",
        &[
            "write",
            "read",
            "read_only",
            "read_mode",
            "deny_read",
            "deny_sensitive_reads",
            "allow_sensitive_reads",
            "temp",
            "no_temp_files",
            "temp_size",
            "caches",
            "cache_size",
            "shm",
            "hardlinks",
            "protect_metadata",
            "allow_metadata",
            "git_directory",
        ],
    ),
    ("Network of the fence", &["net", "host_port", "allow_host", "tcp_port", "profile", "unix_sockets"]),
    (
        "Limits and strength of the fence",
        &[
            "memory",
            "processes",
            "cpus",
            "open_files",
            "file_size",
            "max_output",
            "pty",
            "allow_debug",
            "allow_nested_userns",
            "tier",
            "allow_root",
            "allow_degraded",
            "require",
            "unfenced",
        ],
    ),
    (
        "Servers",
        &[
            "config",
            "no_config",
            "lifecycle",
            "session_isolation",
            "shared",
            "env",
            "force_env",
            "storage",
            "allow_install_scripts",
            "no_package_cache",
            "timeout",
            "max_timeout",
            "start_timeout",
            "grace",
            "max_message_bytes",
            "idle_stop",
        ],
    ),
    (
        "Who may connect",
        &[
            "host",
            "port",
            "http_host",
            "http_port",
            "auth_token_file",
            "tls_cert",
            "tls_key",
            "principal_uids",
            "behind_proxy",
            "allowed_host",
            "allowed_origin",
            "allow_uid",
            "max_connections",
        ],
    ),
    (
        "Sessions and quotas",
        &[
            "client_grace",
            "ephemeral",
            "state_dir",
            "state_size",
            "idle_timeout",
            "max_session_age",
            "handshake_timeout",
            "max_sessions",
            "max_sessions_per_principal",
            "max_sessions_per_instance",
            "max_calls",
            "calls_per_second",
            "instance_calls_per_second",
            "park_after",
            "retry",
            "drain",
            "drain_timeout",
        ],
    ),
    (
        "Logs and output",
        &[
            "audit_log",
            "audit_arguments",
            "audit_key",
            "audit_sink",
            "audit_sink_token",
            "verbose_meta",
            "log_level",
            "log_format",
            "json",
            "report",
        ],
    ),
];

/// Parses the command line. Prints help, or an error with advice, and exits where that is what was asked for.
pub(crate) fn parse() -> Arguments {
    let words: Vec<OsString> = std::env::args_os().collect();
    parse_words(&words)
}

/// The same for other words.
pub(crate) fn parse_words(words: &[OsString]) -> Arguments {
    let matches = command_for(words).try_get_matches_from(without_all(words));
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| with_advice(error, words).exit())
}

/// The command line for completions, which shows `--help-all` as an option. [`parse`] takes that word out before the
/// options are read.
pub(crate) fn with_help_all() -> Command {
    let option = Arg::new("help_all").long(HELP_ALL.trim_start_matches('-')).action(ArgAction::SetTrue);
    Arguments::command().arg(option.global(true).help("Print help with all options"))
}

/// The words before the command of a server, which has options of its own.
fn own_words(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    words.iter().skip(1).take_while(|word| *word != "--")
}

/// The command line as its help is to show it.
fn command_for(words: &[OsString]) -> Command {
    let command = Arguments::command();
    if own_words(words).any(|word| word == HELP_ALL) {
        return grouped(command);
    }
    let asks_for_help = |word: &OsString| word == "--help" || word == "-h" || word == "help";
    if own_words(words).any(asks_for_help) { shortened(command) } else { command }
}

fn without_all(words: &[OsString]) -> Vec<OsString> {
    let own = own_words(words).count() + 1;
    let plain = |(place, word): (usize, &OsString)| {
        let is_asked = place < own && word == HELP_ALL;
        if is_asked { OsString::from("--help") } else { word.clone() }
    };
    words.iter().enumerate().map(plain).collect()
}

/// Hides the options that do not matter to most people.
fn shortened(command: Command) -> Command {
    let keeps = |arg: &Arg, kept: &[&str]| arg.is_positional() || kept.contains(&arg.get_id().as_str());
    let command = SHORT.iter().fold(command, |command, (name, kept)| {
        command.mut_subcommand(name, |command| {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            command
                .mut_args(
                    |arg| if keeps(&arg, kept) { arg.help_heading(None::<&str>) } else { arg.hide(true) },
                )
                .after_help(format!("All options: ringfence {name} {HELP_ALL}\n\n{after}"))
        })
    });
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command
        .mut_args(|arg| if keeps(&arg, &["mode"]) { arg } else { arg.hide(true) })
        .after_help(format!("Options of a command: ringfence COMMAND --help, or {HELP_ALL}\n\n{after}"))
}

/// Shows every option under the heading of its group.
fn grouped(command: Command) -> Command {
    let heading = |arg: Arg| {
        let group = GROUPS.iter().find(|(_, ids)| ids.contains(&arg.get_id().as_str()));
        match group {
            Some((heading, _)) => arg.help_heading(*heading),
            // A heading goes on to what follows it.
            None if arg.is_positional() => arg.help_heading(None::<&str>),
            None => arg,
        }
    };
    let command = SHORT.iter().fold(command, |command, (name, _)| {
        command.mut_subcommand(name, |command| command.mut_args(heading))
    });
    command.mut_args(heading)
}

/// Adds what was probably meant to an error about a word that has no place.
fn with_advice(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return error };
    let unknown = unknown.clone();
    if error.kind() != ErrorKind::UnknownArgument || unknown.starts_with('-') {
        return error;
    }
    let tips = tips(&unknown, words);
    if !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

fn tips(unknown: &str, words: &[OsString]) -> Vec<String> {
    let place = words.iter().position(|word| word == OsStr::new(unknown)).unwrap_or(words.len());
    let command = Arguments::command();
    let subcommand = words.get(1).and_then(|word| command.find_subcommand(word));
    let Some(subcommand) = subcommand else {
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let meant = similar::get_close_matches(unknown, &names, 1, 0.6);
        return meant.iter().map(|name| format!("a similar command exists: 'ringfence {name}'")).collect();
    };
    if !subcommand.get_positionals().any(Arg::is_last_set) {
        return Vec::new();
    }
    let text = |words: &[OsString]| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    };
    let ours = text(words.get(1..place).unwrap_or_default());
    let theirs = text(words.get(place..).unwrap_or_default());
    vec![format!("the command of a server comes after '--': 'ringfence {ours} -- {theirs}'")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        command_for(&words).try_get_matches_from(without_all(&words)).unwrap_err().to_string()
    }

    fn options_in(help: &str) -> usize {
        // What a description is wrapped to stands further to the right.
        let is_option = |line: &&str| line.starts_with("      --") || line.starts_with("  -h,");
        help.lines().filter(is_option).count()
    }

    #[test]
    fn help_shows_ten_options_and_help_all_every_one() {
        let arguments = Arguments::command();
        let is_known = |id: &&str| {
            let mut all = arguments.get_subcommands().flat_map(Command::get_arguments);
            all.any(|arg| arg.get_id() == *id)
        };
        for (name, kept) in SHORT {
            let command = arguments.find_subcommand(name).unwrap();
            let unknown: Vec<_> = kept.iter().filter(|id| !is_known(id)).collect();
            assert!(unknown.is_empty() && kept.len() <= 10, "{name}: {unknown:?}");
            let shown = command.get_arguments().filter(|arg| kept.contains(&arg.get_id().as_str())).count();
            let (short, all) =
                (help(&format!("ringfence {name} --help")), help(&format!("ringfence {name} --help-all")));
            assert_eq!(options_in(&short), shown + 1, "{name}: {short}");
            assert!(short.contains(HELP_ALL), "{short}");
            let options = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
            for option in options.filter_map(|arg| arg.get_long()) {
                assert!(all.contains(&format!("--{option}")), "{name}: no {option}");
            }
        }
        assert_eq!(options_in(&help("ringfence -h")), 2, "{}", help("ringfence -h"));
    }

    #[test]
    fn every_option_of_serve_has_a_group() {
        let command = grouped(Arguments::command());
        let serve = command.find_subcommand("serve").unwrap();
        let loose: Vec<&str> = serve
            .get_arguments()
            .filter(|arg| arg.get_help_heading().is_none() && !arg.is_positional())
            .map(|arg| arg.get_id().as_str())
            .collect();
        assert!(loose.iter().all(|id| *id == "help"), "{loose:?}");
    }

    #[test]
    fn words_behind_the_dashes_are_not_ours() {
        let words: Vec<OsString> = ["ringfence", "serve", "--", "x", HELP_ALL].map(Into::into).into();
        assert_eq!(without_all(&words), words);
    }
}
