//! One client that speaks in lines, and its session once it has one.

use std::sync::Arc;

use bytes::Bytes;
use identity::{Instance, Principal};
use session::{Caller, Contexts, EndReason, Next, Session, Sessions, StreamReader, WorkspaceChoice};
use tokio::sync::{mpsc, watch};
use wire::{Body, ErrorReply, Message, MessageError, Request, code, method};

/// Lines that may wait for the client to read them.
pub(crate) const OUTPUT_LINES: usize = 256;

pub(crate) struct Client {
    sessions: Arc<Sessions>,
    /// Each task that copies a stream holds one of these until its stream ends, and what reads the lines waits for the
    /// last of them: no other count of the tasks is needed.
    output: mpsc::Sender<Bytes>,
    instance: Option<Instance>,
    /// The workspace, if it is known without asking the client.
    workspace: Option<WorkspaceChoice>,
    session: Option<Arc<Session>>,
    opened: watch::Sender<Option<Arc<Session>>>,
}

impl Client {
    pub(crate) fn new(
        sessions: &Arc<Sessions>,
        output: mpsc::Sender<Bytes>,
        instance: Option<Instance>,
        workspace: Option<WorkspaceChoice>,
    ) -> Self {
        let sessions = Arc::clone(sessions);
        Self { sessions, output, instance, workspace, session: None, opened: watch::Sender::default() }
    }

    /// Reports each session that the client opens.
    pub(crate) fn opened(&self) -> watch::Receiver<Option<Arc<Session>>> {
        self.opened.subscribe()
    }

    /// Ends the session, because the client is gone.
    pub(crate) async fn leave(self) {
        if let Some(session) = self.session {
            session.end(EndReason::Deleted).await;
        }
    }

    /// Answers a message that has no id to answer to.
    pub(crate) async fn refuse(&self, reason: &str) {
        let error = ErrorReply::new(code::INVALID_REQUEST, reason);
        let _ = self.output.send(error.to_message(None)).await;
    }

    /// Takes one message of the client.
    pub(crate) async fn take(&mut self, line: Bytes) {
        match Body::parse(line) {
            Ok(Body::Single(message)) => self.take_message(message).await,
            Ok(Body::Batch(_)) => self.refuse("batches are not taken on stdio").await,
            Err(MessageError { code, reason, id }) => {
                let _ = self.output.send(ErrorReply::new(code, reason).to_message(id.as_ref())).await;
            }
        }
    }

    async fn take_message(&mut self, message: Message) {
        // A client may begin anew after its session ended.
        let session =
            self.session.as_ref().filter(|session| !session.has_ended() || !is_initialize(&message));
        match (message, session) {
            (Message::Request(request), None) if request.method == method::INITIALIZE => {
                self.open(request).await;
            }
            (Message::Request(request), Some(session)) => {
                let id = request.id.clone();
                match session.call(request) {
                    Ok(reader) => drop(tokio::spawn(forward(reader, self.output.clone()))),
                    Err(refusal) => drop(self.output.send(refusal.reply().to_message(Some(&id))).await),
                }
            }
            (Message::Request(request), None) => {
                let error = ErrorReply::new(code::INVALID_REQUEST, "begin with initialize");
                let _ = self.output.send(error.to_message(Some(&request.id))).await;
            }
            (Message::Notification(notification), Some(session)) => {
                if let Err(refusal) = session.notify(&notification).await {
                    // A notification has no answer. Later requests get the refusal.
                    tracing::warn!("{refusal}");
                }
            }
            (Message::Response(response), Some(session)) => session.answer(&response),
            (Message::Notification(_) | Message::Response(_), None) => {}
        }
    }

    async fn open(&mut self, request: Request) {
        let id = request.id.clone();
        let caller = Caller {
            principal: Principal::anonymous(),
            instance: self.instance.clone(),
            workspace: self.workspace.clone(),
            contexts: Contexts::default(),
        };
        let answer = match self.sessions.open(caller, request).await {
            Ok((session, answer)) => {
                if let Ok(reader) = session.listen(Some(session.instance()), None) {
                    tokio::spawn(forward(reader, self.output.clone()));
                }
                self.opened.send_replace(Some(Arc::clone(&session)));
                self.session = Some(session);
                answer.into_bytes()
            }
            Err(refusal) => refusal.reply().to_message(Some(&id)),
        };
        let _ = self.output.send(answer).await;
    }
}

fn is_initialize(message: &Message) -> bool {
    matches!(message, Message::Request(request) if request.method == method::INITIALIZE)
}

/// Copies one stream to the output until it ends.
async fn forward(mut reader: StreamReader, output: mpsc::Sender<Bytes>) {
    while let Next::Message(delivery) = reader.next().await {
        let is_last = delivery.is_answer;
        if output.send(delivery.text.into_bytes()).await.is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing::connection;

    /// Returns the answers to one line of a client without a session.
    async fn answers(line: &'static str) -> Vec<serde_json::Value> {
        let sessions = connection(Vec::new()).sessions(Vec::new());
        let (output, mut lines) = mpsc::channel(OUTPUT_LINES);
        let mut client = Client::new(&sessions, output, None, None);
        client.take(Bytes::from_static(line.as_bytes())).await;
        client.leave().await;
        let mut answers = Vec::new();
        while let Some(line) = lines.recv().await {
            answers.push(serde_json::from_slice(&line).unwrap());
        }
        answers
    }

    #[tokio::test]
    async fn a_client_must_begin_with_initialize() {
        let answers = answers(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#).await;
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["id"], 7);
        assert_eq!(answers[0]["error"]["message"], "begin with initialize");
    }

    #[tokio::test]
    async fn what_needs_no_answer_gets_none_without_a_session() {
        assert!(answers(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await.is_empty());
        assert!(answers(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await.is_empty());
    }

    #[tokio::test]
    async fn batches_and_broken_lines_are_answered_with_an_error() {
        for line in [r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "{", "no json"] {
            let answers = answers(line).await;
            assert_eq!(answers.len(), 1, "{line}");
            assert!(
                answers[0]["error"]["code"].is_i64() && answers[0]["id"].is_null(),
                "{line}: {answers:?}"
            );
        }
    }
}
