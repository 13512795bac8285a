//! `ringfence run` and `sandboxed_shell` run one command inside a fence; `doctor` reports what a fence enforces on this
//! host.

mod doctor;
mod error;
mod options;
mod report;
mod run;
mod settings;
mod standard_streams;

pub(crate) use doctor::run as run_doctor;
pub(crate) use error::FencedCommandError;
pub(crate) use options::{DoctorArguments, FenceOptions, RunArguments, ShellArguments, size};
pub(crate) use run::{run, run_shell};
pub(crate) use settings::{
    MetadataDefault, check_hosts, settings, with_git_directories, with_writable_metadata,
};
