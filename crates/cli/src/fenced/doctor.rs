//! `ringfence doctor`: reports what this host enforces, which it finds out by trying, and how to get more.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use fence::{
    CacheChoice, CgroupVersion, Confinement, FenceError, FenceSetup, HostEnvironment, Kernel, Launcher,
    Namespaces, ScopeChoice, UnmetRequirement,
};
use serde_json::json;

use super::error::FencedCommandError;
use super::options::DoctorArguments;
use super::report;
use super::settings::{MetadataDefault, settings};

pub(crate) fn run(arguments: &DoctorArguments) -> Result<ExitCode, FencedCommandError> {
    let launcher = Launcher::new();
    let kernel = launcher.kernel();
    let host_environment = HostEnvironment::of_this_process()?;
    let settings = settings(&arguments.fence, MetadataDefault::Kept)?;
    let scope = match arguments.fence.scope.as_slice() {
        [] => ScopeChoice::Empty,
        directories => ScopeChoice::Directories(directories),
    };
    let setup = FenceSetup::new(&settings, scope, CacheChoice::Private, &host_environment)?;
    let examined = setup.self_test(&launcher).map_err(unmet);
    drop(setup);
    let text = if arguments.json { as_json(&kernel, &examined) } else { as_text(&kernel, &examined) };
    // A reader that has seen enough is not an error.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(if examined.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What this host cannot enforce. A fence that was planned and did not hold is a defect to report.
fn unmet(error: FenceError) -> Vec<UnmetRequirement> {
    match error {
        FenceError::Refused(refusal) => refusal.unmet,
        error => vec![UnmetRequirement {
            what: "fence".to_owned(),
            reason: error.to_string(),
            remedy:
                "this host promised what it did not keep; please report it with the output of this command"
                    .to_owned(),
        }],
    }
}

fn as_json(kernel: &Kernel, examined: &Result<Confinement, Vec<UnmetRequirement>>) -> String {
    let unmet = examined.as_ref().err().into_iter().flatten();
    let missing: Vec<_> = unmet
        .map(|unmet| json!({"what": unmet.what, "reason": unmet.reason, "remedy": unmet.remedy}))
        .collect();
    let report = json!({
        "kernel": kernel,
        "can_be_had": examined.is_ok(),
        "confinement": examined.as_ref().ok(),
        "missing": missing,
    });
    format!("{report:#}\n")
}

fn as_text(kernel: &Kernel, examined: &Result<Confinement, Vec<UnmetRequirement>>) -> String {
    let mut text = host(kernel);
    match examined {
        Ok(confinement) => {
            text += &report::table(confinement, &io::stdout());
            for remedy in kernel.remedies() {
                let _ = writeln!(text, "\nto get more: {remedy}");
            }
        }
        Err(requirements) => {
            text += "this policy cannot be had here:\n";
            for unmet in requirements {
                let _ =
                    writeln!(text, "  {}: {}\n    what to do: {}", unmet.what, unmet.reason, unmet.remedy);
            }
        }
    }
    text
}

/// What was found out about the host.
fn host(kernel: &Kernel) -> String {
    let landlock =
        if kernel.landlock > 0 { format!("version {}", kernel.landlock) } else { "none".to_owned() };
    let seccomp = if kernel.seccomp { "yes" } else { "no" };
    let namespaces = match &kernel.namespaces {
        Namespaces::Available => "available".to_owned(),
        Namespaces::Missing { step, reason } => format!("not available ({step}: {reason})"),
    };
    let groups = match kernel.limits.version {
        Some(CgroupVersion::V1) => "version 1",
        Some(CgroupVersion::V2) => "version 2",
        None => "none that this user may use",
    };
    let user = if kernel.is_root { "root; commands run as root without capabilities" } else { "not root" };
    format!(
        "Landlock         {landlock}\nseccomp filters  {seccomp}\nuser namespaces  {namespaces}\n\
         control groups   {groups}\nuser             {user}\n\n"
    )
}
