//! The memory of this process itself.

/// Returns memory that the allocator keeps after a burst to the system. Too slow to do after every call.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the locks of the allocator and touches nothing but what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
