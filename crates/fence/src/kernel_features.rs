//! What the kernel says about itself without a trial.

/// The version of Landlock that the kernel enforces; 0 if none.
pub(crate) fn landlock_version() -> u32 {
    const VERSION: libc::c_long = 1;
    // SAFETY: asked with this flag, the call reads nothing and returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// Whether filters can answer with an error number.
pub(crate) fn has_seccomp_filters() -> bool {
    const GET_ACTION_AVAIL: libc::c_long = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads the one number that is pointed to.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}
