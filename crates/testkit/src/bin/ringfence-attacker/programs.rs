//! X1–X5, X9: programs that have, or might gain, more privileges than the program that starts them.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::AttackStage;

use crate::files::{overwrite, rename};
use crate::must_work::effective_capabilities;
use crate::row::Row;
use crate::system::{Attempt, Errno, call};

pub(crate) const ROWS: &[Row] = &[
    ("X1", |stage| gained_capabilities(&stage.setuid_program())),
    ("X2", |stage| gained_capabilities(&stage.capable_program())),
    ("X3", through_loader),
    ("X4", overwrite_launcher),
    ("X5", |stage| run_program(stage.in_scope("x5"), &[])),
    ("X9", |stage| run_32_bit_program(&stage.in_scope("x9"))),
];

const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// Runs a program and returns its output, or its exit code as an error. If a signal ended it, sends the same signal
/// to this process.
pub(crate) fn run_program(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Attempt {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if let Some(signal) = output.status.signal() {
        drop(call!(libc::SYS_kill, std::process::id(), signal));
    }
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        code => Err(Errno(code.unwrap_or(libc::EIO))),
    }
}

fn gained_capabilities(program: &Path) -> Attempt {
    match run_program(program, &["privileges".as_ref()])? {
        privileges if privileges.ends_with("CapEff 0000000000000000") => Err(Errno::NOTHING_GAINED),
        privileges => Ok(privileges),
    }
}

/// Prints the user and the capabilities of this process, for the program that started it.
pub(crate) fn print_privileges() -> Result<(), String> {
    let user = call!(libc::SYS_geteuid).map_err(|errno| errno.to_string())?;
    let capabilities = effective_capabilities().map_err(|errno| errno.to_string())?;
    println!("uid {user}, CapEff {capabilities}");
    Ok(())
}

fn through_loader(stage: &AttackStage) -> Attempt {
    let loader = LOADERS.into_iter().find(|loader| Path::new(loader).exists()).ok_or(Errno(libc::ENOENT))?;
    let attacker = std::env::current_exe()?;
    let path = stage.outside("x3");
    run_program(loader, &[attacker.as_os_str(), "touch".as_ref(), path.as_os_str()])
}

/// Tries to overwrite the launcher through the processes that run it, then by its path, and then to put another file
/// in its place.
fn overwrite_launcher(stage: &AttackStage) -> Attempt {
    let parent = call!(libc::SYS_getppid)?;
    let running = [format!("/proc/{parent}/exe"), "/proc/1/exe".to_owned(), "/proc/self/exe".to_owned()];
    for path in running {
        if overwrites_launcher(path.as_ref(), stage) {
            return Ok(path);
        }
    }
    overwrite(&stage.launcher).or_else(|_| rename(stage.in_scope("x4"), &stage.launcher))
}

/// Overwrites `path` only if it really is the launcher: without a fence, process 1 is the host's init.
fn overwrites_launcher(path: &Path, stage: &AttackStage) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target == stage.launcher) && overwrite(path).is_ok()
}

pub(crate) fn run_32_bit_program(path: &Path) -> Attempt {
    write_32_bit_program(path)?;
    run_program(path, &[])
}

/// Writes an executable that only exits, through a system call of the 32-bit interface.
pub(crate) fn write_32_bit_program(path: &Path) -> Result<(), Errno> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(&PROGRAM_32_BIT)?;
    Ok(())
}

#[rustfmt::skip]
const PROGRAM_32_BIT: [u8; 93] = [
    // Header: 32 bits, little-endian; executable for the 80386, entry at 0x08048054, one program header.
    0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    2, 0, 3, 0, 1, 0, 0, 0, 0x54, 0x80, 0x04, 0x08, 0x34, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0x34, 0, 0x20, 0, 1, 0, 0x28, 0,
    0, 0, 0, 0,
    // Program header: all 93 bytes at 0x08048000, readable and executable.
    1, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x80, 0x04, 0x08, 0x00, 0x80, 0x04, 0x08,
    93, 0, 0, 0, 93, 0, 0, 0, 5, 0, 0, 0, 0, 0x10, 0, 0,
    // mov eax, 1 (exit); xor ebx, ebx; int 0x80
    0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80,
];
