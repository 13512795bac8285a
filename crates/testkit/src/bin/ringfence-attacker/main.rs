//! `ringfence-attacker`: tries to get out of its fence in every way that the escape tests of `crates/cli` list, and
//! prints the outcome of each attempt. It also plays the victim, and the other misbehaving programs that tests of the
//! fence need.

#![allow(unsafe_code, reason = "the attempts are system calls, made as an attacker makes them")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "registers hold numbers of every width"
)]

mod administration;
mod attempts;
mod devices;
mod endings;
mod file_calls;
mod files;
mod ipc;
mod kernel;
mod launch;
mod layers;
mod leftovers;
mod metadata;
mod must_work;
mod network;
mod other_processes;
mod own_root;
mod processes;
mod programs;
mod race;
mod reads;
mod ring;
mod row;
mod sockets;
mod supervisor;
mod system;
mod victim;

use std::path::Path;
use std::process::ExitCode;

use testkit::KernelOffer;

use system::{Attempt, Errno};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(complaint) => {
            eprintln!("ringfence-attacker: {complaint}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let owned = |texts: &[&str]| -> Vec<String> { texts.iter().copied().map(str::to_owned).collect() };
    match arguments {
        ["try", stage, only @ ..] => {
            attempts::try_rows(Path::new(stage), &owned(only).into_iter().collect())?;
        }
        ["launch", stage, command @ ..] => return Err(launch::launch(Path::new(stage), &owned(command))),
        ["supervise", program, arguments @ ..] => return supervisor::supervise(program, &owned(arguments)),
        ["victim", outside, ..] => victim::be_victim(Path::new(outside))?,
        ["kernel"] => print_kernel_offer(),
        ["touch", path] => return Ok(exit_code(files::create(path))),
        ["privileges"] => programs::print_privileges()?,
        ["write-32-bit-program", path] => {
            programs::write_32_bit_program(Path::new(path)).map_err(|errno| errno.to_string())?;
        }
        ["fork-bomb"] => endings::fork_bomb()?,
        ["hog-memory", mebibytes] => endings::hog_memory(number(mebibytes)?),
        ["fill", directory] => endings::fill(Path::new(directory))?,
        ["open-files"] => endings::open_files()?,
        ["flood", mebibytes] => endings::flood(number(mebibytes)?)?,
        ["daemonise", lock] => print_attempt(endings::daemonise(Path::new(lock)))?,
        ["stay", lock] => print_attempt(endings::stay(Path::new(lock), false))?,
        ["stay-stubbornly", lock] => print_attempt(endings::stay(Path::new(lock), true))?,
        ["show-temp"] => endings::show_temp()?,
        ["create-when-told", paths @ ..] => endings::create_when_told(&owned(paths))?,
        ["race", directory, rounds, seed] => {
            race::race(Path::new(directory), number(rounds)?, number(seed)?)?;
        }
        _ => return Err(format!("{arguments:?} is nothing that I do")),
    }
    Ok(ExitCode::SUCCESS)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn print_attempt(attempt: Attempt) -> Result<(), String> {
    println!("{}", attempt.map_err(|errno| errno.to_string())?);
    Ok(())
}

/// The error number as an exit code, for a parent that is this same program.
fn exit_code(attempt: Attempt) -> ExitCode {
    let errno = attempt.map_or_else(|errno| errno, |_| Errno(0));
    ExitCode::from(u8::try_from(errno.0).unwrap_or(u8::MAX))
}

fn print_kernel_offer() {
    let offer =
        KernelOffer { landlock_abi: kernel::landlock_abi(), user_namespaces: kernel::has_user_namespaces() };
    println!("{}", serde_json::to_string(&offer).expect("numbers are valid JSON"));
}
