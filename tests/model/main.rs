//! Explores the real state machine over a store and an upstream that fail: every interleaving within the bounds below, not a sample.
//!
//! One key. Two events under it: `A`, which is sent again until it has an answer, and `B`, which is another event, once. Every
//! fault has a budget, so that every path ends; within its budget it may strike at any step. Time passes only when somebody waits
//! for a lease or a clock is stepped: that is the worst case, since a lease is then over exactly when another gateway asks.
//!
//! | what | bound |
//! |---|---|
//! | gateways | 2, or 3 with one fault; each has one delivery at a time |
//! | faults | any two of crash, lost reply, late write, failover, clock step, upstream fault, another event (see each [`Budget`]) |
//! | a failover | loses the last acknowledged write, or the last two |
//! | expiry | none: no path lasts as long as a window |

#![cfg(test)]

mod properties;
mod states;
mod step;
mod world;

use onceward::idempotency::policy::{OnFailed, OnUnknown};
use stateright::{Checker, Model};

use world::{Budget, NONE, Seen, World};

/// Visits every state of a world; how many there are.
fn explore(name: &str, world: World) -> usize {
    let checker = world.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    tell(&format!("{name}: {states} different states, longest path {}", checker.max_depth()));
    checker.assert_properties();
    states
}

/// Lest a promise holds because nothing happened.
fn has_met(seen: &Seen, what: &[&str]) {
    let seen = seen.lock().unwrap();
    let missing: Vec<_> = what.iter().filter(|what| !seen.contains(**what)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}; met: {seen:?}");
}

#[expect(clippy::disallowed_macros, reason = "the size of what was explored belongs into the test's output")]
fn tell(text: &str) {
    println!("{text}");
}

/// One fault of each kind.
const FAULTS: [(&str, Budget); 11] = [
    ("crash", Budget { crashes: 1, ..NONE }),
    ("lost reply", Budget { lost: 1, ..NONE }),
    ("late write", Budget { late: 1, ..NONE }),
    ("failover", Budget { failovers: 1, ..NONE }),
    ("clock back", Budget { back: 1, ..NONE }),
    ("clock forward", Budget { forward: 1, ..NONE }),
    ("refused", Budget { refused: 1, ..NONE }),
    ("broken exchange", Budget { broken: 1, ..NONE }),
    ("500", Budget { answered_500: 1, ..NONE }),
    ("other event", Budget { conflicts: 1, ..NONE }),
    ("renewal", Budget { beats: 1, ..NONE }),
];

/// Two gateways, and every two faults together, two of the same kind included.
#[test]
fn every_pair_of_faults() {
    let seen = Seen::default();
    let mut states = 0;
    for (at, (first, one)) in FAULTS.iter().enumerate() {
        for (second, other) in &FAULTS[at..] {
            // See `a_failover_with_a_clock_that_steps_back_may_reuse_a_fence`.
            if (*first, *second) != ("failover", "clock back") {
                let world = World { seen: seen.clone(), ..World::new(2, one.and(*other)) };
                states += explore(&format!("{first} + {second}"), world);
            }
        }
    }
    tell(&format!("every pair of faults: {states} different states"));
    let met = [
        "Claim",
        "Own",
        "Busy",
        "Replay",
        "Mismatch",
        "processing",
        "succeeded",
        "failed unsent",
        "failed transient",
        "unknown broken",
        "second forward",
        "lease lost",
        "given back",
        "writes lost",
        "written anew",
    ];
    has_met(&seen, &met);
}

/// Three gateways, one fault at a time.
#[test]
fn three_gateways() {
    let seen = Seen::default();
    for (name, budget) in FAULTS.iter().filter(|(name, _)| THREE.contains(name)) {
        explore(&format!("three gateways, {name}"), World { seen: seen.clone(), ..World::new(3, *budget) });
    }
    has_met(&seen, &["Claim", "Busy", "Replay", "second forward", "lease lost"]);
}

const THREE: [&str; 2] = ["failover", "clock forward"];

/// `unknown = "hold"`: what nobody knows is never sent again.
#[test]
fn held_means_held() {
    let mut world = World::new(2, Budget { crashes: 1, lost: 1, broken: 1, ..NONE });
    world.policy.unknown = OnUnknown::Hold;
    let seen = world.seen.clone();
    explore("hold", world);
    has_met(&seen, &["Held", "unknown broken", "Own"]);
    assert!(!seen.lock().unwrap().contains("second forward"), "held, and sent again all the same");
}

#[test]
fn dead_letters_after_the_last_attempt() {
    let mut world = World::new(2, Budget { answered_500: 2, answered_422: 1, refused: 1, ..NONE });
    world.policy.failed = OnFailed::DeadLetter;
    world.policy.max_attempts = 2;
    let seen = world.seen.clone();
    explore("dead letter", world);
    has_met(&seen, &["Held", "failed terminal", "failed transient", "failed unsent", "unknown exhausted"]);
}

#[test]
fn failures_that_are_replayed() {
    let mut world = World::new(2, Budget { answered_500: 1, answered_422: 1, conflicts: 1, ..NONE });
    world.policy.failed = OnFailed::Replay;
    let seen = world.seen.clone();
    explore("replayed failures", world);
    has_met(&seen, &["Replay", "Mismatch", "failed terminal", "failed transient"]);
}

/// The model can tell: a store that does not compare fences lets a stale owner change its successor's record.
#[test]
fn without_the_fence_a_stale_owner_is_found_out() {
    let mut world = World::new(2, Budget { broken: 1, lost: 1, ..NONE });
    world.fenced = false;
    let checker = world.checker().threads(2).spawn_bfs().join();
    let path = checker.discovery(properties::STALE).expect("a stale owner wrote, and nobody noticed");
    tell(&format!("without the fence: found after {} steps", path.into_actions().len()));
}

/// The model can tell: a gateway that forwards before its claim stands does so twice, unreported.
#[test]
fn forwarding_before_the_claim_is_found_out() {
    let mut world = World::new(2, NONE);
    world.claims_first = false;
    let checker = world.checker().threads(2).spawn_bfs().join();
    checker.assert_any_discovery(properties::ONCE);
}

/// Where the promise ends, and `docs/promises.md` says so: a store that forgets a claim *and* whose clock steps back may number
/// the next claim no higher than the forgotten one, when another gateway makes it.
#[test]
fn a_failover_with_a_clock_that_steps_back_may_reuse_a_fence() {
    let world = World::new(2, Budget { failovers: 1, back: 1, ..NONE });
    let checker = world.checker().threads(2).spawn_bfs().join();
    checker.assert_any_discovery(properties::FENCES);
}
