//! Runs the tasks that a conversation starts, so that the conversation need not know the modules that perform them.

use std::sync::Arc;

use crate::http::conversation::{Conversation, Task, TaskFuture};
use crate::http::{exchange, handshake, modern, standalone_stream};

pub(crate) fn run(conversation: Arc<Conversation>, task: Task) -> TaskFuture {
    match task {
        Task::Greet { line, id } => Box::pin(handshake::greet(conversation, line, id)),
        Task::Settle { session, line } => Box::pin(handshake::settle(conversation, session, line)),
        Task::Renew => Box::pin(handshake::renew(conversation)),
        Task::Exchange { session, line, turn, cancelled } => {
            Box::pin(exchange::run(conversation, session, line, turn, cancelled))
        }
        Task::Listen { session } => Box::pin(standalone_stream::listen(conversation, session)),
        Task::ModernCall { modern, line, turn, cancelled } => {
            Box::pin(modern::call::run(conversation, modern, line, turn, cancelled))
        }
        Task::ModernListen { modern } => Box::pin(modern::listen::run(conversation, modern)),
    }
}
