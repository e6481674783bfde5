//! Many clients of a service at once. `SUBSTRATE_LOAD_ROUNDS=200 cargo test -p substrate-cli --test e2e service_load` is the long form.

use std::collections::BTreeSet;

use serde_json::json;

use crate::service_support::{DIRECT, Place, text};

const CLIENTS: usize = 64;
/// Commands of each client.
const ROUNDS: usize = 4;
/// What a service may grow by once it has served all of them: it remembers the last thousand answers.
const GROWTH: u64 = 32 << 20;

#[test]
fn many_clients_get_their_own_answers_and_nothing_is_lost() {
    let rounds = std::env::var("SUBSTRATE_LOAD_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let place = Place::new(DIRECT);
    place.start();
    let memory = || place.get("/v1/status")["memory_bytes"].as_u64().unwrap();
    let client = |number: usize| -> Vec<String> {
        let one = |round: usize| {
            let said = format!("client {number}, round {round}");
            let agent = format!("agent-{}", number % 8);
            let answer =
                place.ran(json!({"agent_id": agent, "argv": ["/bin/echo", "-n", said.as_str()]}));
            assert_eq!(text(&answer, "stdout_b64"), said, "{answer}");
            assert_eq!(answer["exit"], 0, "{answer}");
            answer["span_id"].as_str().unwrap().to_owned()
        };
        (0..rounds).map(one).collect()
    };
    let all = || -> BTreeSet<String> {
        std::thread::scope(|scope| {
            let client = &client;
            let clients = (0..CLIENTS).map(|number| scope.spawn(move || client(number)));
            let clients: Vec<_> = clients.collect();
            let spans = clients.into_iter().flat_map(|one| one.join().unwrap());
            spans.collect()
        })
    };
    let mut answered = all();
    let before = memory();
    answered.extend(all());
    let after = memory();
    assert!(after < before + GROWTH, "{before} {after}");
    assert_eq!(answered.len(), 2 * CLIENTS * rounds);
    let ended = place.sandbox.events("command_complete");
    let ended: BTreeSet<String> = ended
        .iter()
        .map(|event| event["span_id"].as_str().unwrap().to_owned())
        .collect();
    let lost: Vec<&String> = answered.difference(&ended).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(place.get("/v1/status")["running"], 0);
}
