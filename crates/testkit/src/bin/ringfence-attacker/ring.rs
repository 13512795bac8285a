//! Opens a file through `io_uring`, without a library: the kernel opens it on behalf of the ring, where a system call
//! filter does not see it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::system::{Errno, c_path, call};

/// Offsets of `struct io_uring_params`, in words.
const SUBMISSIONS: usize = 0;
const COMPLETIONS: usize = 1;
const SUBMISSION_TAIL: usize = 11;
const SUBMISSION_ARRAY: usize = 16;
const COMPLETION_ENTRIES: usize = 25;

/// The offsets at which the areas of a ring are mapped.
const SUBMISSION_RING: u64 = 0;
const COMPLETION_RING: u64 = 0x0800_0000;
const SUBMISSION_ENTRIES: u64 = 0x1000_0000;

const OPENAT: u8 = 18;
const WAIT_FOR_EVENTS: u32 = 1;

/// `struct io_uring_sqe`, as far as `openat` uses it.
#[repr(C)]
struct Submission {
    operation: u8,
    flags: u8,
    priority: u16,
    directory: i32,
    offset: u64,
    path: u64,
    mode: u32,
    open_flags: u32,
    rest: [u64; 4],
}

pub(crate) fn setup(parameters: &mut [u32; 30]) -> Result<i32, Errno> {
    Ok(call!(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr())? as i32)
}

pub(crate) fn open(path: &Path, flags: i32, mode: u32) -> Result<i32, Errno> {
    let mut parameters = [0_u32; 30];
    let ring = setup(&mut parameters)?;
    let of = |word: usize| parameters[word] as usize;
    let submissions = map(ring, SUBMISSION_RING, of(SUBMISSION_ARRAY) + 4 * of(SUBMISSIONS))?;
    let completions = map(ring, COMPLETION_RING, of(COMPLETION_ENTRIES) + 16 * of(COMPLETIONS))?;
    let entries = map(ring, SUBMISSION_ENTRIES, size_of::<Submission>() * of(SUBMISSIONS))?;
    let path = c_path(path);
    let submission = Submission {
        operation: OPENAT,
        flags: 0,
        priority: 0,
        directory: libc::AT_FDCWD,
        offset: 0,
        path: path.as_ptr().addr() as u64,
        mode,
        open_flags: flags as u32,
        rest: [0; 4],
    };
    // SAFETY: the three areas are mapped with the sizes that the kernel gave, so their first entries and the offsets
    // that it names lie inside them and are aligned.
    unsafe {
        entries.cast::<Submission>().write(submission);
        submissions.byte_add(of(SUBMISSION_ARRAY)).cast::<u32>().write(0);
        (*submissions.byte_add(of(SUBMISSION_TAIL)).cast::<AtomicU32>()).store(1, Ordering::Release);
    }
    call!(libc::SYS_io_uring_enter, ring, 1, 1, WAIT_FOR_EVENTS, 0, 0)?;
    // SAFETY: as above; the call returned after one completion was written.
    let result = unsafe { completions.byte_add(of(COMPLETION_ENTRIES) + 8).cast::<i32>().read_volatile() };
    if result < 0 { Err(Errno(-result)) } else { Ok(result) }
}

fn map(ring: i32, offset: u64, length: usize) -> Result<*mut libc::c_void, Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of Rust's.
    let area = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            ring,
            offset as libc::off_t,
        )
    };
    if area == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(area) }
}
