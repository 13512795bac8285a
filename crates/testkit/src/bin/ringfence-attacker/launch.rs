//! Opens descriptors and executes another program that inherits them. A fence that lets one through leaks its
//! caller's open files.

use std::fs::{File, OpenOptions};
use std::io::Error;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use testkit::AttackStage;

use crate::system::{Errno, call};

/// Replaces this process with the command; returns only if that failed.
pub(crate) fn launch(stage: &Path, command: &[String]) -> String {
    let Some((program, arguments)) = command.split_first() else { return "no command".to_owned() };
    match read_stage(stage).and_then(|stage| open_all(&stage)) {
        Ok(()) => format!("{program}: {}", Command::new(program).args(arguments).exec()),
        Err(error) => format!("{}: {error}", stage.display()),
    }
}

fn read_stage(path: &Path) -> Result<AttackStage, Error> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn open_all(stage: &AttackStage) -> Result<(), Error> {
    let for_appending = |name| OpenOptions::new().append(true).open(stage.outside(name));
    inherit(&for_appending("f20")?.into(), stage.inherited.file)?;
    let connection = TcpStream::connect(("127.0.0.1", stage.victim.tcp_port))?;
    inherit(&connection.into(), stage.inherited.socket)?;
    let (sender, receiver) = UnixStream::pair()?;
    send_descriptor(&sender, &for_appending("w7")?).map_err(|errno| Error::from_raw_os_error(errno.0))?;
    inherit(&receiver.into(), stage.inherited.unix)
}

/// Makes a copy under the number that the attempts know, which the next program inherits.
fn inherit(descriptor: &OwnedFd, number: i32) -> Result<(), Error> {
    let copied = call!(libc::SYS_dup3, descriptor.as_raw_fd(), number, 0);
    copied.map(drop).map_err(|errno| Error::from_raw_os_error(errno.0))
}

fn send_descriptor(socket: &UnixStream, file: &File) -> Result<(), Errno> {
    let byte = 0_u8;
    // `struct cmsghdr`: its length with one descriptor, level and type, and the descriptor.
    let kind = (i64::from(libc::SCM_RIGHTS) << 32) | i64::from(libc::SOL_SOCKET);
    let mut control = [20, kind, i64::from(file.as_raw_fd())];
    let mut vector = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    // SAFETY: a message header of all zeroes is valid and empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    call!(libc::SYS_sendmsg, socket.as_raw_fd(), &raw const message, 0).map(drop)
}
