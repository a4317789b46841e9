//! The model itself: what may happen next. What a step does is in `step`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::idempotency::policy::{
    FinalStatuses, InFlight, KeepRequest, OnFailed, OnMissingKey, OnPluginFailure, OnStoreDown, OnUnknown, Replay,
    ReplayBody,
};
use onceward::idempotency::{Policy, State};
use stateright::{Model, Property};

use super::properties;
use super::states::{Broken, Event, Gateway, Moment, Phase, Told};
use super::step;

/// A lease in the model's ticks, of a microsecond each.
pub const LEASE: u64 = 100;
/// A failover takes some time, less than a lease.
pub const FAILOVER: u64 = 10;
/// A clock steps further than a lease.
pub const STEP: u64 = 300;

/// How often each fault may still strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A gateway ends, and with it all it knew.
    pub crashes: u8,
    /// A write was applied and its reply is lost.
    pub lost: u8,
    /// A write arrives after its gateway gave it up.
    pub late: u8,
    /// The store goes back to what it was one or two writes ago.
    pub failovers: u8,
    /// The store's clock steps back.
    pub back: u8,
    /// The store's clock steps forward, over every lease.
    pub forward: u8,
    /// The upstream takes no byte.
    pub refused: u8,
    /// The exchange breaks after bytes were sent, processed or not.
    pub broken: u8,
    /// The upstream answers 500.
    pub answered_500: u8,
    /// The upstream answers 422.
    pub answered_422: u8,
    /// Another event comes under the same key.
    pub conflicts: u8,
    /// A lease is renewed.
    pub beats: u8,
}

/// No fault at all.
pub const NONE: Budget = Budget {
    crashes: 0,
    lost: 0,
    late: 0,
    failovers: 0,
    back: 0,
    forward: 0,
    refused: 0,
    broken: 0,
    answered_500: 0,
    answered_422: 0,
    conflicts: 0,
    beats: 0,
};

impl Budget {
    /// The faults of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            crashes: self.crashes + other.crashes,
            lost: self.lost + other.lost,
            late: self.late + other.late,
            failovers: self.failovers + other.failovers,
            back: self.back + other.back,
            forward: self.forward + other.forward,
            refused: self.refused + other.refused,
            broken: self.broken + other.broken,
            answered_500: self.answered_500 + other.answered_500,
            answered_422: self.answered_422 + other.answered_422,
            conflicts: self.conflicts + other.conflicts,
            beats: self.beats + other.beats,
        }
    }
}

/// What was met on any path.
pub type Seen = Arc<Mutex<BTreeSet<String>>>;

/// One exploration.
#[derive(Clone, Debug)]
pub struct World {
    pub gateways: usize,
    pub budget: Budget,
    pub policy: Policy,
    /// The store compares fences. False: the model must find out.
    pub fenced: bool,
    /// A gateway forwards only over a claim. False: the model must find out.
    pub claims_first: bool,
    /// What was met on any path.
    pub seen: Seen,
}

/// What happens to a write on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    Fine,
    /// Applied, and its reply is lost.
    ReplyLost,
    /// Not applied yet; its gateway gives up.
    Late,
}

/// How an exchange with the upstream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered(u16),
    Refused,
    Broken { processed: bool },
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Deliver(usize, Event),
    Claim(usize, Net),
    GiveBack(usize),
    Beat(usize),
    Send(usize, Fate),
    Finish(usize, Net),
    Abandon(usize),
    Crash(usize),
    Arrive,
    Failover { writes: usize },
    ClockBack,
    ClockForward,
}

impl World {
    pub fn new(gateways: usize, budget: Budget) -> Self {
        Self { gateways, budget, policy: policy(), fenced: true, claims_first: true, seen: Arc::default() }
    }

    /// Notes that something was met, in any exploration path.
    pub fn met(&self, what: &str) {
        let mut seen = self.seen.lock().unwrap();
        if !seen.contains(what) {
            seen.insert(what.to_owned());
        }
    }

    /// The same, for where a record stands.
    pub fn met_state(&self, state: &State) {
        match state {
            State::Failed { class, .. } => self.met(&format!("failed {}", class.as_str())),
            State::Unknown { reason } => self.met(&format!("unknown {}", reason.as_str())),
            other => self.met(other.status().as_str()),
        }
    }

    fn deliveries(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for (at, gateway) in moment.gateways.iter().enumerate() {
            // Idle gateways that know the same are alike: the first of them will do.
            let alike = |other: &Gateway| other.phase == Phase::Idle && other.floor == gateway.floor;
            if gateway.phase != Phase::Idle || moment.gateways.iter().take(at).any(alike) {
                continue;
            }
            for event in [Event::A, Event::B] {
                let comes = match moment.answers[event as usize] {
                    Told::Nothing => event == Event::A || self.budget.conflicts > 0,
                    Told::Success { again } => again > 0,
                    Told::Refused => false,
                };
                if comes {
                    actions.push(Action::Deliver(at, event));
                }
            }
        }
    }

    fn steps(moment: &Moment, at: usize, phase: &Phase, actions: &mut Vec<Action>) {
        let left = &moment.left;
        let nets = [
            (Net::Fine, true),
            (Net::ReplyLost, left.lost > 0),
            (Net::Late, left.late > 0 && moment.in_transit.is_none()),
        ];
        let nets = || nets.into_iter().filter(|(_, may)| *may).map(|(net, _)| net);
        match phase {
            Phase::Idle => return,
            Phase::Claiming { .. } => actions.extend(nets().map(|net| Action::Claim(at, net))),
            Phase::InDoubt { .. } => actions.push(Action::GiveBack(at)),
            Phase::Claimed { .. } => {
                let fates = [
                    (Fate::Answered(200), true),
                    (Fate::Answered(500), left.answered_500 > 0),
                    (Fate::Answered(422), left.answered_422 > 0),
                    (Fate::Refused, left.refused > 0),
                    (Fate::Broken { processed: true }, left.broken > 0),
                    (Fate::Broken { processed: false }, left.broken > 0),
                ];
                actions.extend(fates.into_iter().filter(|(_, may)| *may).map(|(fate, _)| Action::Send(at, fate)));
                if left.beats > 0 {
                    actions.push(Action::Beat(at));
                }
            }
            Phase::Ended { .. } => actions.extend(nets().map(|net| Action::Finish(at, net))),
            Phase::Late { .. } => {
                actions.extend(nets().map(|net| Action::Finish(at, net)));
                actions.push(Action::Abandon(at));
            }
        }
        if left.crashes > 0 {
            actions.push(Action::Crash(at));
        }
    }
}

impl Model for World {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let gateway = Gateway { floor: 0, deliveries: 0, phase: Phase::Idle };
        vec![Moment {
            now: 1_000,
            standing: None,
            before: Vec::new(),
            in_transit: None,
            gateways: vec![gateway; self.gateways],
            upstream: Vec::new(),
            fences: Vec::new(),
            answers: [Told::Nothing; 2],
            left: self.budget,
            broken: Broken::default(),
        }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        self.deliveries(moment, actions);
        for (at, gateway) in moment.gateways.iter().enumerate() {
            Self::steps(moment, at, &gateway.phase, actions);
        }
        if moment.in_transit.is_some() {
            actions.push(Action::Arrive);
        }
        // Once nobody comes any more nothing that follows can matter to anybody.
        if properties::is_over(self, moment) {
            return;
        }
        if moment.left.failovers > 0 {
            actions.extend((1..=moment.before.len()).map(|writes| Action::Failover { writes }));
        }
        if moment.left.back > 0 {
            actions.push(Action::ClockBack);
        }
        if moment.left.forward > 0 {
            actions.push(Action::ClockForward);
        }
    }

    fn next_state(&self, last: &Moment, action: Action) -> Option<Moment> {
        let mut next = last.clone();
        step::take(self, &mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

fn policy() -> Policy {
    Policy {
        window: Duration::from_hours(720),
        lease: Duration::from_micros(LEASE),
        missing_key: OnMissingKey::Reject,
        in_flight: InFlight { wait: Duration::ZERO, status: 409 },
        mismatch_status: 409,
        unknown: OnUnknown::Retry,
        failed: OnFailed::Retry,
        max_attempts: 3,
        body_alias: false,
        failed_window: Duration::from_mins(30),
        final_statuses: FinalStatuses::parse(["2xx"]).unwrap(),
        store_down: OnStoreDown::Reject,
        plugin_failure: OnPluginFailure::Reject,
        keep_request: KeepRequest::Never,
        replay: Replay {
            body: ReplayBody::Full,
            max_body: 1,
            drop_headers: Vec::new(),
            redact: Vec::new(),
            resource_id: String::new(),
        },
    }
}
