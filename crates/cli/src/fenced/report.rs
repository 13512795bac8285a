//! The protections as a table for people.

use std::fmt::Write;
use std::io::IsTerminal;

use fence::{Confinement, Status, Tier};

/// One line for each protection, with its meaning and, if there is one, a note below.
pub(super) fn table(confinement: &Confinement, stream: &impl IsTerminal) -> String {
    let mut text = String::new();
    let tier = match confinement.tier {
        Tier::A => "A: environment, descriptors, capabilities, Landlock, seccomp",
        Tier::B => "B: Tier A and namespaces of its own",
    };
    let _ = writeln!(text, "tier {tier}\nnetwork {}\n", confinement.network);
    for protection in &confinement.protections {
        let status = protection.status.as_str();
        let padded = format!("{status:<14}");
        let status = if stream.is_terminal() { coloured(protection.status, &padded) } else { padded };
        let verified = match protection.status {
            Status::Enforced | Status::Configured | Status::Partial => protection.verified.as_str(),
            Status::Unenforced | Status::NotRequested => "-",
        };
        let line =
            format!("{:<19} {status} {:<7} {}", protection.name.as_str(), verified, protection.mechanism);
        let _ = writeln!(text, "{}", line.trim_end());
        let _ = writeln!(text, "{:<19} {}", "", protection.name.meaning());
        if let Some(note) = &protection.note {
            let _ = writeln!(text, "{:<19} {note}", "");
        }
    }
    text
}

fn coloured(status: Status, text: &str) -> String {
    let code = match status {
        Status::Enforced => 32,
        Status::Configured => 36,
        Status::Partial => 33,
        Status::Unenforced => 31,
        Status::NotRequested => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}
