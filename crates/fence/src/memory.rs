//! The memory of this process itself.

/// Gives back to the system what the allocator keeps after a burst. That takes moments: nothing for every call.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the locks of the allocator and touches nothing but what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
