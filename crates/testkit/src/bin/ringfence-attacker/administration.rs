//! K28–K37: calls that administer the whole machine. Their arguments are such that the kernel refuses them or changes
//! nothing, with an answer that differs from a filter's.

use crate::row::Row;
use crate::system::{Attempt, Errno, call};

pub(crate) const ROWS: &[Row] = &[
    ("K28", |_| answered(call!(libc::SYS_swapon, NO_ADDRESS, 0))),
    ("K29", |_| answered(call!(libc::SYS_acct, NO_ADDRESS))),
    ("K30", |_| answered(call!(libc::SYS_reboot, 0, 0, 0, 0))),
    ("K31", |_| answered(call!(libc::SYS_syslog, SIZE_OF_LOG, 0, 0))),
    ("K32", |_| {
        any_answered([
            call!(libc::SYS_settimeofday, NO_ADDRESS, 0),
            call!(libc::SYS_clock_settime, libc::CLOCK_REALTIME, NO_ADDRESS),
            call!(libc::SYS_adjtimex, NO_ADDRESS),
            call!(libc::SYS_clock_adjtime, libc::CLOCK_REALTIME, NO_ADDRESS),
        ])
    }),
    ("K33", |_| any_answered([call!(libc::SYS_sethostname, 0, -1), call!(libc::SYS_setdomainname, 0, -1)])),
    ("K34", |_| {
        any_answered([
            call!(libc::SYS_modify_ldt, 0, NO_ADDRESS, 0),
            call!(libc::SYS_iopl, 4),
            call!(libc::SYS_ioperm, -1, 1, 0),
        ])
    }),
    ("K35", |_| {
        any_answered([
            call!(libc::SYS_kexec_load, 0, TOO_MANY_SEGMENTS, NO_ADDRESS, 0),
            call!(libc::SYS_kexec_file_load, -1, -1, 0, NO_ADDRESS, 0),
            call!(libc::SYS_init_module, NO_ADDRESS, 0, NO_ADDRESS),
            call!(libc::SYS_finit_module, -1, NO_ADDRESS, 0),
            call!(libc::SYS_delete_module, NO_ADDRESS, 0),
        ])
    }),
    ("K36", |_| {
        any_answered([
            call!(libc::SYS_quotactl, QUOTA_FORMAT, NO_ADDRESS, 0, 0),
            call!(libc::SYS_quotactl_fd, -1, QUOTA_FORMAT, 0, 0),
        ])
    }),
    ("K37", |_| {
        any_answered([
            call!(libc::SYS_sysfs, 3),
            call!(libc::SYS_ustat, 0, NO_ADDRESS),
            call!(libc::SYS_uselib, NO_ADDRESS),
            call!(libc::SYS_lookup_dcookie, 0, NO_ADDRESS, 0),
            call!(libc::SYS_nfsservctl, 0, NO_ADDRESS, 0),
        ])
    }),
];

/// An address at which no process has memory.
const NO_ADDRESS: i32 = 1;
const SIZE_OF_LOG: i32 = 10;
const TOO_MANY_SEGMENTS: i32 = 1000;
/// `Q_GETFMT` for users.
const QUOTA_FORMAT: u32 = 0x8000_0400;

/// Counts every answer but a refusal as success: the kernel looked at the arguments.
pub(crate) fn answered(answer: Result<i64, Errno>) -> Attempt {
    match answer {
        Err(errno @ Errno(libc::EPERM | libc::EACCES)) => Err(errno),
        Err(errno) => Ok(errno.to_string()),
        Ok(_) => Ok(String::new()),
    }
}

/// Succeeds if the kernel answered any of the calls.
pub(crate) fn any_answered(answers: impl IntoIterator<Item = Result<i64, Errno>>) -> Attempt {
    let mut refusal = Errno(libc::EINVAL);
    for answer in answers {
        match answered(answer) {
            Err(errno) => refusal = errno,
            answer => return answer,
        }
    }
    Err(refusal)
}
