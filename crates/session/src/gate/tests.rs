//! Tests of the gate. Calls are made by hand, so that the time at which each began is known exactly.

mod asking;
mod properties;
mod waiting;

use super::*;
use crate::client::Client;
use crate::gateway_context::GatewayContext;
use crate::stream::StreamReader;
use crate::testing::{client, context, request};

const DEADLINE: Duration = Duration::from_secs(10);

/// A gate with the client in front of it.
struct Bench {
    gate: Gate,
    client: Arc<Client>,
    standalone: Arc<Stream>,
    start: Instant,
}

/// A request in front of the gate, and the connection that waits for its answer.
struct Sent {
    call: Arc<Call>,
    reader: StreamReader,
    actions: Vec<GateAction>,
}

impl Bench {
    fn new() -> Self {
        Self::on(&context(), true)
    }

    /// A client whose streams are one pipe, as on stdio.
    fn with_one_stream() -> Self {
        Self::on(&context(), false)
    }

    fn on(context: &Arc<GatewayContext>, has_many_streams: bool) -> Self {
        Self {
            gate: Gate::new(GateSettings { deadline: DEADLINE, has_many_streams }),
            client: client(context),
            standalone: Stream::new(0, false, &context.counters),
            start: Instant::now(),
        }
    }

    fn initialized() -> Self {
        let mut bench = Self::new();
        assert!(bench.step(GateEvent::Initialized).is_empty(), "no stream is read yet");
        bench
    }

    fn step(&mut self, event: GateEvent) -> Vec<GateAction> {
        self.step_after(Duration::ZERO, event)
    }

    fn step_after(&mut self, time: Duration, event: GateEvent) -> Vec<GateAction> {
        self.gate.step(event, &self.standalone, self.start + time)
    }

    fn send(&mut self, id: u64) -> Sent {
        self.send_with(id, Duration::ZERO, "{}", false)
    }

    fn send_after(&mut self, time: Duration, id: u64) -> Sent {
        self.send_with(id, time, "{}", false)
    }

    fn send_with(&mut self, id: u64, time: Duration, params: &str, answer_only: bool) -> Sent {
        let request = request(id, "tools/call", params);
        let stream = Stream::new(id, answer_only, &self.client.context().counters);
        let reader = stream.attach(None);
        let call = Arc::new(Call::new(&self.client, &request, stream, self.start + time));
        let queued = Queued { call: Arc::clone(&call), request: Box::new(request) };
        let actions = self.step_after(time, GateEvent::Call(queued));
        Sent { call, reader, actions }
    }

    fn answer_roots(&mut self) -> Vec<GateAction> {
        self.step(GateEvent::RootsAnswered(named("file:///a")))
    }
}

fn named(uri: &str) -> RootsAnswer {
    RootsAnswer::Named(vec![uri.to_owned()])
}

fn id_of(call: &Call) -> u64 {
    call.client_id.as_number().unwrap()
}

/// The ids of the requests that are released; panics on any other action.
fn released(actions: &[GateAction]) -> Vec<u64> {
    match actions {
        [] => Vec::new(),
        [GateAction::Release(queue)] => queue.iter().map(|queued| id_of(&queued.call)).collect(),
        other => panic!("{other:?}"),
    }
}

/// The number of the stream on which the client is asked; panics on any other action.
fn asked_on(actions: &[GateAction]) -> Option<u64> {
    match actions {
        [] => None,
        [GateAction::RequestRoots(stream)] => Some(stream.number),
        other => panic!("{other:?}"),
    }
}

/// The ids of the requests that fail, and the missing step that the error names.
fn failed(actions: &[GateAction]) -> (Vec<u64>, String) {
    let [GateAction::Fail(calls, reply)] = actions else { panic!("{actions:?}") };
    let missing = reply.data.as_ref().unwrap()["missing"].as_str().unwrap().to_owned();
    (calls.iter().map(|call| id_of(call)).collect(), missing)
}
