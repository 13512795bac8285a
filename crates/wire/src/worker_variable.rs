//! The environment variables in which a server finds out about its session.

/// The handle of the session; not its id, which is a credential.
pub const SESSION: &str = "RINGFENCE_SESSION";
/// The client window.
pub const INSTANCE: &str = "RINGFENCE_INSTANCE";
/// The directories of the session as URIs, in JSON, the first one being where the server starts.
pub const SCOPE: &str = "RINGFENCE_SCOPE";
/// What holds around the server, in JSON.
pub const CONFINEMENT: &str = "RINGFENCE_CONFINEMENT";
