//! What an operator may set, and the bounds that sessions and workers share. A bound that one file alone uses stands
//! there.

use std::num::NonZeroU32;
use std::time::Duration;

/// What an operator may set.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Settings {
    /// How long a call may take without an answer or progress.
    pub timeout: Duration,
    /// How long a call may take with progress.
    pub max_timeout: Duration,
    /// How long an upstream may take to answer `initialize`. A cold `npx` downloads meanwhile.
    pub start_timeout: Duration,
    /// How long each step of ending a process may take: after its stdin closed, after SIGTERM.
    pub grace: Duration,
    /// Longest line of an upstream.
    pub max_message: usize,
    /// A session without a request or an open stream for this long ends.
    pub idle_timeout: Duration,
    /// The servers of a session are stopped when its client has read no stream and sent nothing for this long; the next
    /// request starts them again. A client that never read a stream, or that resumes streams, gets [`LONGER_GRACE`]
    /// times as long.
    pub client_grace: Duration,
    /// A session that never finished its handshake ends after this long without a request.
    pub handshake_timeout: Duration,
    /// No session becomes older.
    pub max_age: Option<Duration>,
    /// How long requests may wait for the client to name its workspace.
    pub scope_timeout: Duration,
    /// Whether a client may read one stream and not another. Not so on stdio.
    pub has_many_streams: bool,
    /// How long a shared worker runs after its last session.
    pub idle_stop: Duration,
    pub max_sessions: usize,
    pub max_sessions_per_principal: Option<usize>,
    pub max_sessions_per_instance: Option<usize>,
    /// Calls of one session in flight at once.
    pub max_calls: usize,
    /// Of one principal.
    pub calls_per_second: Option<NonZeroU32>,
    /// Of one client window.
    pub instance_calls_per_second: Option<NonZeroU32>,
    /// Whether results say which client window they belong to.
    pub verbose_meta: bool,
    /// Whether the audit log holds the arguments of calls.
    pub audit_arguments: bool,
    /// Whether client windows have workers of their own, even in one workspace.
    pub isolate_instances: bool,
    /// What the database of sessions may take on the disk.
    pub max_stored_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            max_timeout: Duration::from_secs(3600),
            start_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(2),
            max_message: wire::MAX_MESSAGE_BYTES,
            idle_timeout: Duration::from_secs(3600),
            client_grace: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(60),
            max_age: None,
            scope_timeout: Duration::from_secs(10),
            has_many_streams: true,
            idle_stop: Duration::from_secs(60),
            max_sessions: 1000,
            max_sessions_per_principal: None,
            max_sessions_per_instance: None,
            max_calls: 1024,
            calls_per_second: None,
            instance_calls_per_second: None,
            verbose_meta: false,
            audit_arguments: false,
            isolate_instances: false,
            max_stored_bytes: 256 * 1024 * 1024,
        }
    }
}

/// How many times longer than others a client is waited for that has never read a stream, or that resumes streams.
pub(crate) const LONGER_GRACE: u32 = 3;

/// What each stream of a client that seems to be gone keeps of the news that it has not had.
pub(crate) const MAX_DESERTED_BYTES: usize = 16 * 1024;

/// A call that is answered sooner, with no message before its answer, is answered as plain JSON.
pub(crate) const ANSWERED_SOON: Duration = Duration::from_millis(100);

/// Requests toward one client that it has not answered yet.
pub(crate) const MAX_SERVER_REQUESTS: usize = 64;

/// Calls and notifications that wait for an upstream to start.
pub(crate) const MAX_WAITING: usize = 1024;

/// How much a stream keeps for a client that is slow or comes back.
pub(crate) const MAX_STREAM_EVENTS: usize = 256;
pub(crate) const MAX_STREAM_BYTES: usize = 4 * 1024 * 1024;

/// How long a client that was told to come back counts as reading.
pub(crate) const PARKED_FOR: Duration = Duration::from_secs(60);

/// Ended streams that a session keeps for clients that resume.
pub(crate) const MAX_ENDED_STREAMS: usize = 32;
pub(crate) const MAX_ENDED_BYTES: usize = 16 * 1024 * 1024;
pub(crate) const ENDED_STREAM_AGE: Duration = Duration::from_secs(300);

/// How long the reason of an end is told; after this the session is as unknown as any other.
pub(crate) const KEPT_TOMBSTONES_FOR: Duration = Duration::from_secs(300);

/// Tasks whose owner is remembered.
pub(crate) const MAX_TASKS: usize = 4096;

/// URIs that one session may be subscribed to at a shared upstream.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 1024;

/// Calls in a row that one of several servers may leave unanswered before its circuit breaker opens, and for how long.
pub(crate) const MAX_UNANSWERED: u32 = 3;
pub(crate) const BREAKER_PAUSE: Duration = Duration::from_secs(30);

/// A process that dies younger than this after its start counts toward a crash loop.
pub(crate) const CRASH_AGE: Duration = Duration::from_secs(10);
/// Wait before the third start in a crash loop; doubled for each further one.
pub(crate) const FIRST_BACKOFF: Duration = Duration::from_millis(500);
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(30);
