//! A race: one process exchanges a directory of the scope with a link to a directory outside, as fast as it can,
//! while another works on files below that name.

use std::path::{Path, PathBuf};

use crate::files::{create, done, overwrite};
use crate::system::{Attempt, Errno, Fork, c_path, call, fork, open, wait_for};

const EXCHANGE: u32 = 2;

/// Performs `rounds` operations, chosen by `seed`, below `directory/flipped`, while another process keeps exchanging
/// it with `directory/link`. Prints how many succeeded and how many were refused.
pub(crate) fn race(directory: &Path, rounds: u32, seed: u64) -> Result<(), String> {
    let answer = fork().map_err(|errno| errno.to_string())?;
    let Fork::Parent { child } = answer else { flip_for_ever(directory) };
    let mut random = Random(seed);
    let (mut succeeded, mut refused) = (0_u32, 0_u32);
    for round in 0..rounds {
        match work(&directory.join("flipped"), round, random.below(8)) {
            Ok(_) => succeeded += 1,
            Err(_) => refused += 1,
        }
    }
    drop(call!(libc::SYS_kill, child, libc::SIGKILL));
    wait_for(child).map_err(|errno| errno.to_string())?;
    println!("{succeeded} succeeded, {refused} were refused");
    Ok(())
}

fn flip_for_ever(directory: &Path) -> ! {
    let (flipped, link) = (c_path(directory.join("flipped")), c_path(directory.join("link")));
    loop {
        drop(call!(libc::SYS_renameat2, libc::AT_FDCWD, flipped, libc::AT_FDCWD, link, EXCHANGE));
    }
}

/// Performs one operation that changes something below `directory`, wherever that leads at the moment.
fn work(directory: &Path, round: u32, operation: u64) -> Attempt {
    let new: PathBuf = directory.join(format!("new-{round}"));
    let existing = directory.join("existing");
    match operation {
        0 => create(&new),
        1 => overwrite(&existing),
        2 => open(&existing, libc::O_RDONLY | libc::O_TRUNC, 0).map(|_| String::new()),
        3 => done(call!(libc::SYS_mkdir, c_path(&new), 0o700)),
        4 => done(call!(libc::SYS_symlink, c"/etc/passwd", c_path(&new))),
        5 => done(call!(libc::SYS_truncate, c_path(&existing), 0)),
        6 => done(call!(libc::SYS_link, c_path(&existing), c_path(&new))),
        7 => done(call!(libc::SYS_rename, c_path(&existing), c_path(&new))),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// A xorshift generator, so that a race can be repeated with the same choices.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
