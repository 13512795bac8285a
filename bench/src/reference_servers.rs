//! Small servers that ringfence is compared with, each a process of its own.

pub(crate) mod bare_axum;
pub(crate) mod many_tools;
pub(crate) mod plain_files;
pub(crate) mod same_bytes;
