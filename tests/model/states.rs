//! What the model remembers: the store, each gateway, the upstream's log, and what is left of each fault.

use std::hash::{Hash, Hasher};

use onceward::event::Timestamp;
use onceward::idempotency::{Claim, Draft, Expect, Outcome, Record, State};

use super::world::Budget;

/// Which of the two events a delivery carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    A,
    B,
}

/// One moment of the whole system.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    pub now: u64,
    pub standing: Option<Record>,
    /// What stood before the last two writes, newest last: a failover goes back there.
    pub before: Vec<Option<Record>>,
    /// A write that left its gateway and has not arrived.
    pub in_transit: Option<(Expect, Draft)>,
    pub gateways: Vec<Gateway>,
    /// What reached the upstream, in the order of arrival.
    pub upstream: Vec<Forward>,
    /// The fences of all claims that were acknowledged, in that order.
    pub fences: Vec<u64>,
    /// What each event's sender knows by now.
    pub answers: [Told; 2],
    pub left: Budget,
    pub broken: Broken,
}

/// What went wrong for good: the properties look at these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken {
    /// A write by an older fence changed a record of a newer one.
    pub stale_write: bool,
    /// A kept answer changed while it was kept.
    pub answer_changed: bool,
    /// A success was told of an event that the upstream never processed.
    pub empty_success: bool,
    /// An event got the other one's answer, or was sent although the other one stood.
    pub mixed: bool,
    /// Somebody was told to wait for a time that has come.
    pub endless: bool,
}

/// One gateway process.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// One above the highest fence it has seen.
    pub floor: u64,
    /// How many deliveries it has had: its owner tokens.
    pub deliveries: u8,
    pub phase: Phase,
}

/// Where a gateway's delivery is.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    Idle,
    /// Decides over what it has seen, and writes the claim.
    Claiming {
        event: Event,
        seen: Option<Record>,
        now: u64,
        again: bool,
    },
    /// No reply came to either write: its sender was told 503, and the claim is looked for.
    InDoubt {
        event: Event,
    },
    /// The claim stands, nothing is sent.
    Claimed {
        event: Event,
        claim: Claim,
    },
    /// The exchange is over, its outcome not written.
    Ended {
        event: Event,
        claim: Claim,
        outcome: Outcome,
    },
    /// Its sender has the answer; the outcome is still not written.
    Late {
        claim: Claim,
        outcome: Outcome,
    },
}

/// One request at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    pub event: Event,
    pub fence: u64,
    /// The gateway said that an earlier attempt may have arrived.
    pub flagged: bool,
    /// It took effect.
    pub processed: bool,
}

/// What a sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// Nothing yet, or to come again.
    Nothing,
    /// The event is done. It comes so many times more.
    Success { again: u8 },
    /// It is another event, it waits for a person, or its failure is final.
    Refused,
}

pub fn at(now: u64) -> Timestamp {
    Timestamp::from_micros(1_000 + now)
}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.now.hash(state);
        hash_record(self.standing.as_ref(), state);
        for record in &self.before {
            hash_record(record.as_ref(), state);
        }
        if let Some((expect, draft)) = &self.in_transit {
            hash_expect(*expect, state);
            (draft.owner.0.as_str(), draft.attempt, draft.ambiguous).hash(state);
            hash_state(&draft.state, state);
        }
        for gateway in &self.gateways {
            (gateway.floor, gateway.deliveries).hash(state);
            hash_phase(&gateway.phase, state);
        }
        (&self.upstream, &self.fences, self.answers, self.left, self.broken).hash(state);
    }
}

fn hash_phase<H: Hasher>(phase: &Phase, state: &mut H) {
    std::mem::discriminant(phase).hash(state);
    match phase {
        Phase::Idle => {}
        Phase::Claiming { event, seen, now, again } => {
            (event, now, again).hash(state);
            hash_record(seen.as_ref(), state);
        }
        Phase::InDoubt { event } => event.hash(state),
        Phase::Claimed { event, claim } => {
            event.hash(state);
            hash_claim(claim, state);
        }
        Phase::Ended { event, claim, outcome } => {
            event.hash(state);
            hash_claim(claim, state);
            hash_outcome(outcome, state);
        }
        Phase::Late { claim, outcome } => {
            hash_claim(claim, state);
            hash_outcome(outcome, state);
        }
    }
}

fn hash_claim<H: Hasher>(claim: &Claim, state: &mut H) {
    (claim.owner.0.as_str(), claim.fence, claim.attempt, claim.ambiguous).hash(state);
}

fn hash_outcome<H: Hasher>(outcome: &Outcome, state: &mut H) {
    std::mem::discriminant(outcome).hash(state);
    if let Outcome::Answered(response) = outcome {
        response.status.hash(state);
    }
}

fn hash_expect<H: Hasher>(expect: Expect, state: &mut H) {
    match expect {
        Expect::Absent => 0.hash(state),
        Expect::At { revision, lease } => (revision.fence, revision.status, lease as u8).hash(state),
    }
}

/// All that differs between the model's records: the history is never kept (see `World::swap`).
fn hash_record<H: Hasher>(record: Option<&Record>, state: &mut H) {
    let Some(record) = record else { return 0.hash(state) };
    hash_state(&record.state, state);
    (record.owner.0.as_str(), record.fence, record.attempt, record.ambiguous, &record.fingerprint.digest).hash(state);
    (record.started_at, record.finished_at, record.lease_until, record.expires_at).hash(state);
}

fn hash_state<H: Hasher>(kept: &State, state: &mut H) {
    kept.status().hash(state);
    match kept {
        State::Failed { class, response } => (class, response.as_ref().map(|response| response.status)).hash(state),
        State::Unknown { reason } => reason.hash(state),
        State::Succeeded { response } => response.status.hash(state),
        State::Processing | State::Alias { .. } | State::Mismatch { .. } => {}
    }
}
