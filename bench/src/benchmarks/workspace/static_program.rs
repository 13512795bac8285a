//! The smallest program: a static executable that only exits with 0. No program can start faster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{Error, WhileDoing};

const LOAD_ADDRESS: u64 = 0x0040_0000;
const FILE_HEADER_BYTES: u16 = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;

/// The machine's number in the ELF header, and the instructions for `exit_group(0)`.
#[cfg(target_arch = "x86_64")]
const MACHINE: (u16, &[u8]) = (62, &[0x31, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05]);
#[cfg(target_arch = "aarch64")]
const MACHINE: (u16, &[u8]) = (183, &[0, 0, 0x80, 0xd2, 0xc8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4]);

pub(crate) fn write_to(file: &Path) -> Result<(), Error> {
    fs::write(file, executable()).while_doing("writing the static program")?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).while_doing("making it executable")
}

fn executable() -> Vec<u8> {
    let (machine, code) = MACHINE;
    let code_offset = u64::from(FILE_HEADER_BYTES + PROGRAM_HEADER_BYTES);
    let length = code_offset + code.len() as u64;
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // Executable, machine, version.
    bytes.extend([2_u16.to_le_bytes(), machine.to_le_bytes()].concat());
    bytes.extend(1_u32.to_le_bytes());
    // Entry, program headers, no sections, no flags.
    for value in [LOAD_ADDRESS + code_offset, u64::from(FILE_HEADER_BYTES), 0] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for value in [FILE_HEADER_BYTES, PROGRAM_HEADER_BYTES, 1, 64, 0, 0] {
        bytes.extend(value.to_le_bytes());
    }
    // One segment to load, readable and executable: the whole file.
    bytes.extend([1_u32.to_le_bytes(), 5_u32.to_le_bytes()].concat());
    for value in [0, LOAD_ADDRESS, LOAD_ADDRESS, length, length, 0x1000] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(code);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_ends_well() {
        let file = std::env::temp_dir().join(format!("ringfence-bench-static-{}", std::process::id()));
        write_to(&file).unwrap();
        let status = std::process::Command::new(&file).status().unwrap();
        fs::remove_file(&file).unwrap();
        assert!(status.success());
    }
}
