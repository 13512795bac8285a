//! The methods that the gateway itself acts on. It forwards all others unseen.

pub const INITIALIZE: &str = "initialize";
pub const PING: &str = "ping";
pub const SET_LEVEL: &str = "logging/setLevel";
pub const SUBSCRIBE: &str = "resources/subscribe";
pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
pub const TOOLS_LIST: &str = "tools/list";
pub const TOOLS_CALL: &str = "tools/call";
pub const RESOURCES_LIST: &str = "resources/list";
pub const TEMPLATES_LIST: &str = "resources/templates/list";
pub const RESOURCES_READ: &str = "resources/read";
pub const PROMPTS_LIST: &str = "prompts/list";
pub const PROMPTS_GET: &str = "prompts/get";
pub const COMPLETE: &str = "completion/complete";
pub const TASKS_GET: &str = "tasks/get";
pub const TASKS_RESULT: &str = "tasks/result";
pub const TASKS_CANCEL: &str = "tasks/cancel";
pub const TASKS_LIST: &str = "tasks/list";

pub const SAMPLING: &str = "sampling/createMessage";
pub const ELICITATION: &str = "elicitation/create";
pub const ROOTS_LIST: &str = "roots/list";

pub const INITIALIZED: &str = "notifications/initialized";
pub const CANCELLED: &str = "notifications/cancelled";
pub const PROGRESS: &str = "notifications/progress";
pub const LOG_MESSAGE: &str = "notifications/message";
pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
/// An extension of ours: what the built-in server did to files, for the audit log. Clients never see it.
pub const FILE_OPERATIONS: &str = "notifications/io.ringfence/file_operations";
/// An extension of ours: the built-in server asks what is said about its session, or changes it. Clients never see it.
pub const SESSION_CONTEXT: &str = "io.ringfence/session_context";
/// An extension of ours: the built-in server asks which copy of the project its session works in and which others there
/// are, or to take the changes over. Clients never see it.
pub const SESSION_WORKSPACE: &str = "io.ringfence/session_workspace";
pub const TASK_STATUS: &str = "notifications/tasks/status";
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
