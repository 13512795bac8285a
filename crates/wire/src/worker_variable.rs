//! The environment variables that tell a server about its session.

/// The handle of the session. Not its id, which is a credential.
pub const SESSION: &str = "RINGFENCE_SESSION";
/// The client window.
pub const INSTANCE: &str = "RINGFENCE_INSTANCE";
/// The directories of the session as a JSON array of URIs. The server starts in the first.
pub const SCOPE: &str = "RINGFENCE_SCOPE";
/// Who named the directories of the session: `roots`, `workspace`, or `default` if the client named none.
pub const SCOPE_SOURCE: &str = "RINGFENCE_SCOPE_SOURCE";
/// The confinement of the server, in JSON.
pub const CONFINEMENT: &str = "RINGFENCE_CONFINEMENT";
/// The git directory that the workspace seems to belong to and that the fence leaves outside.
pub const GIT_LEFT_OUT: &str = "RINGFENCE_GIT_LEFT_OUT";
/// The open files in which the built-in server keeps what outlives it, by their numbers.
pub const STATE: &str = "RINGFENCE_STATE";
/// The session workspace, where the session works on a copy of its directory.
pub const COPY: &str = "RINGFENCE_COPY";
