//! Tests of the gate.

use super::*;
use crate::testing::{call, client, context, request};

fn gate() -> Gate {
    Gate::new(GateSettings { deadline: Duration::from_secs(10), has_many_streams: true })
}

#[test]
fn requests_wait_in_order_and_are_released_once() {
    let (context, now) = (context(), Instant::now());
    let client = client(&context);
    let mut gate = gate();
    let mut readers = Vec::new();
    for id in 1..=3 {
        let request = request(id, "tools/call", r#"{"name":"x"}"#);
        let (call, reader) = call(&client, &request);
        readers.push(reader);
        let queued = Queued { call, request: Box::new(request) };
        assert!(gate.step(GateEvent::Call(queued), &client.standalone(), now).is_empty());
    }
    let actions = gate.step(GateEvent::Locked, &client.standalone(), now);
    let [GateAction::Release(queue)] = &actions[..] else { panic!("{actions:?}") };
    let ids: Vec<_> = queue.iter().map(|queued| queued.call.client_id.as_number().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(gate.step(GateEvent::Locked, &client.standalone(), now).is_empty());
}
