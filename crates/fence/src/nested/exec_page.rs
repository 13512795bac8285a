//! The next command, in memory that the server shares with its fork server.

use std::ffi::CStr;
use std::io;

use super::NestedCommand;

/// Memory with the next command, shared by the server and its fork server. It is at the same address in both, so that
/// one can write the pointers that the other passes to `execve`.
#[derive(Debug)]
pub(super) struct ExecPage {
    pub(super) words: usize,
}

impl ExecPage {
    /// What the kernel accepts for arguments and environment under the usual stack limit. Only pages that are written
    /// take memory.
    pub(super) const BYTES: usize = 2 * 1024 * 1024;

    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a new mapping, which overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { words: start.expose_provenance() })
        }
    }

    /// The program, where the environment begins, the arguments, null, the environment, null; then the strings.
    pub(super) fn write(&mut self, command: &NestedCommand) -> io::Result<()> {
        const WORD: usize = size_of::<usize>();
        let strings = || [&command.program].into_iter().chain(&command.arguments).chain(&command.environment);
        let count = strings().count() + 3;
        let bytes: usize = strings().map(|string| string.as_bytes_with_nul().len()).sum();
        if count * WORD + bytes > Self::BYTES {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let mut words = Vec::with_capacity(count);
        let mut text = Vec::with_capacity(bytes);
        let text_start = self.words + count * WORD;
        let mut place = |string: &CStr| {
            let address = text_start + text.len();
            text.extend_from_slice(string.to_bytes_with_nul());
            address
        };
        words.push(place(&command.program));
        words.push(self.words + (2 + command.arguments.len() + 1) * WORD);
        words.extend(command.arguments.iter().map(|argument| place(argument)));
        words.push(0);
        words.extend(command.environment.iter().map(|variable| place(variable)));
        words.push(0);
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.words);
        // SAFETY: both parts fit, as was counted. The last command has become a program or has failed, so
        // no reader of what is overwritten is left.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr().cast::<u8>(), start, count * WORD);
            std::ptr::copy_nonoverlapping(text.as_ptr(), start.add(count * WORD), text.len());
        }
        Ok(())
    }
}

impl Drop for ExecPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's alone, and nothing points into it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.words), Self::BYTES) };
    }
}
