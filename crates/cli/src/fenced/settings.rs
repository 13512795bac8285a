//! Turns the options that the user wrote into the settings of a fence.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use config::NO_GIT_DIRECTORY;
use fence::{
    Allowance, FenceSettings, GitChoice, HostPattern, Limit, LimitOrigin, Limits, MetadataChoice, Network,
    ProtectionName, UnixSockets,
};

use super::error::FencedCommandError;
use super::options::{
    ALL_METADATA, CacheLifetime, FenceOptions, HardlinkChoice, NetworkChoice, Profile, ReadChoice, TempChoice,
};

/// The scope takes in what leads back to it.
const NO_NAMED_GIT_DIRECTORY: GitChoice = GitChoice { leading_back: true, named: Vec::new() };

/// The limit on processes if the user names none.
const DEFAULT_PROCESSES: u64 = 2048;

/// Whether a command keeps the metadata of the scope as it is, unless the options say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataDefault {
    Kept,
    Writable,
}

pub(crate) fn settings(
    options: &FenceOptions,
    metadata_default: MetadataDefault,
) -> Result<FenceSettings, FencedCommandError> {
    let has_temp = !options.no_temp_files && options.temp != TempChoice::None;
    Ok(FenceSettings {
        write: options.write.clone(),
        read: options.read.clone(),
        read_mode: match options.read_mode {
            Some(ReadChoice::Open) => fence::ReadChoice::Open,
            Some(ReadChoice::Strict) | None => fence::ReadChoice::Strict,
        },
        deny_read: options.deny_read.clone(),
        allow_sensitive_reads: options.allow_sensitive_reads.clone(),
        temp_bytes: has_temp.then_some(options.temp_size),
        network: network(options)?,
        unix_sockets: if options.unix_sockets { UnixSockets::Allow } else { UnixSockets::Deny },
        allowances: allowances(options),
        limits: limits(options),
        tier: options.tier,
        allow_degraded: options.allow_degraded.iter().copied().collect(),
        require: require(options),
        hardlinks: match options.hardlinks {
            HardlinkChoice::Warn => fence::HardlinkChoice::Warn,
            HardlinkChoice::Refuse => fence::HardlinkChoice::Refuse,
            HardlinkChoice::Protect => fence::HardlinkChoice::Protect,
        },
        git: with_git_directories(NO_NAMED_GIT_DIRECTORY, &options.git_directory),
        metadata: metadata(options, metadata_default),
        read_only: options.read_only,
        kept_caches: (options.caches == CacheLifetime::Workspace).then_some(options.cache_size),
        all_programs: false,
        user: options.user,
    })
}

/// Takes git directories outside the scope in, beside those that were chosen before.
pub(crate) fn with_git_directories(choice: GitChoice, named: &[PathBuf]) -> GitChoice {
    let is_none = |named: &&PathBuf| *named == Path::new(NO_GIT_DIRECTORY);
    let more = named.iter().filter(|named| !is_none(named)).cloned();
    GitChoice {
        leading_back: choice.leading_back && !named.iter().any(|named| is_none(&named)),
        named: choice.named.into_iter().chain(more).collect(),
    }
}

/// What the user asks for by name must be there.
fn require(options: &FenceOptions) -> BTreeSet<ProtectionName> {
    let metadata = options.protect_metadata.then_some(ProtectionName::ScopeMetadata);
    options.require.iter().copied().chain(metadata).collect()
}

fn metadata(options: &FenceOptions, default: MetadataDefault) -> MetadataChoice {
    if options.protect_metadata || default == MetadataDefault::Kept {
        with_writable_metadata(MetadataChoice::Kept { except: BTreeSet::new() }, &options.allow_metadata)
    } else {
        MetadataChoice::Writable
    }
}

/// Leaves files with these names to the command.
pub(crate) fn with_writable_metadata(choice: MetadataChoice, names: &[String]) -> MetadataChoice {
    match choice {
        MetadataChoice::Kept { mut except } if !names.iter().any(|name| name == ALL_METADATA) => {
            except.extend(names.iter().cloned());
            MetadataChoice::Kept { except }
        }
        _ => MetadataChoice::Writable,
    }
}

fn network(options: &FenceOptions) -> Result<Network, FencedCommandError> {
    let choice = options.net.unwrap_or(match options.profile {
        Some(Profile::Offline) => NetworkChoice::None,
        Some(Profile::Development) | None => NetworkChoice::All,
    });
    let misplaced = [
        (!options.host_port.is_empty() && choice != NetworkChoice::Localhost, "--host-port", "localhost"),
        (!options.allow_host.is_empty() && choice != NetworkChoice::Http, "--allow-host", "http"),
        (!options.tcp_port.is_empty() && choice != NetworkChoice::Ports, "--tcp-port", "ports"),
    ];
    if let Some((_, option, mode)) = misplaced.into_iter().find(|(is_misplaced, ..)| *is_misplaced) {
        return Err(FencedCommandError::Argument {
            message: format!("{option} means something only with --net {mode}"),
            hint: format!("add --net {mode}, or leave {option} out"),
        });
    }
    check_hosts(&options.allow_host)?;
    Ok(match choice {
        NetworkChoice::All => Network::All,
        NetworkChoice::None => Network::None,
        NetworkChoice::Localhost => Network::Localhost { ports: options.host_port.clone() },
        NetworkChoice::Http => {
            Network::Http { hosts: (!options.allow_host.is_empty()).then(|| options.allow_host.clone()) }
        }
        NetworkChoice::Ports if options.tcp_port.is_empty() => Network::Ports { ports: vec![80, 443] },
        NetworkChoice::Ports => Network::Ports { ports: options.tcp_port.clone() },
    })
}

/// Refuses invalid host patterns.
pub(crate) fn check_hosts(hosts: &[String]) -> Result<(), FencedCommandError> {
    for host in hosts {
        host.parse::<HostPattern>().map_err(|error| FencedCommandError::Argument {
            message: format!("--allow-host {host}: {error}"),
            hint: "name a host such as example.org, or *.example.org for those below it".to_owned(),
        })?;
    }
    Ok(())
}

fn allowances(options: &FenceOptions) -> BTreeSet<Allowance> {
    [
        (options.shm, Allowance::SharedMemory),
        (options.pty, Allowance::Terminals),
        (options.allow_debug, Allowance::Debugging),
        (options.allow_nested_userns, Allowance::NestedUserns),
        (options.allow_root, Allowance::Root),
    ]
    .into_iter()
    .filter_map(|(is_allowed, allowance)| is_allowed.then_some(allowance))
    .collect()
}

fn limits(options: &FenceOptions) -> Limits {
    let asked = |value| Limit { value, origin: LimitOrigin::Asked };
    let default = |value| Limit { value, origin: LimitOrigin::Default };
    Limits {
        memory: options.memory.map(asked).or_else(|| default_memory().map(default)),
        processes: Some(options.processes.map_or(default(DEFAULT_PROCESSES), asked)),
        cpus: options.cpus,
        open_files: options.open_files,
        file_size: options.file_size,
    }
}

/// Three quarters of what the machine has: a runaway command must not take the machine with it.
fn default_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024 / 4 * 3)
}
