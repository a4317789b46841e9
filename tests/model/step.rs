//! What a step does. Decisions, claims, outcomes, stamps and comparisons are the real ones; only what the gateway does between
//! them is written down again here, after `gateway::claiming` and `gateway::claims`.

use bytes::Bytes;
use onceward::event::{Fingerprint, PluginVersion, StoredBody, StoredResponse};
use onceward::idempotency::machine::Me;
use onceward::idempotency::record::{Status, UnknownReason};
use onceward::idempotency::{
    Claim, Decision, Draft, Expect, Fence, Lease, Outcome, Owner, Plan, Record, Revision, State, on_outcome, on_request,
};

use super::states::{Event, Forward, Moment, Phase, Told, at};
use super::world::{Action, FAILOVER, Fate, Net, STEP, World};

/// Does one step.
pub fn take(world: &World, moment: &mut Moment, action: Action) {
    match action {
        Action::Deliver(gateway, event) => {
            if let Told::Success { again } = &mut moment.answers[event as usize] {
                *again -= 1;
            }
            moment.gateways[gateway].deliveries += 1;
            moment.gateways[gateway].phase = Phase::Claiming { event, seen: None, now: 0, again: false };
        }
        Action::Claim(gateway, net) => claim(world, moment, gateway, net),
        Action::GiveBack(gateway) => give_back(world, moment, gateway),
        Action::Beat(gateway) => beat(world, moment, gateway),
        Action::Send(gateway, fate) => send(world, moment, gateway, fate),
        Action::Finish(gateway, net) => finish(world, moment, gateway, net),
        Action::Abandon(gateway) => moment.gateways[gateway].phase = Phase::Idle,
        Action::Crash(gateway) => {
            moment.left.crashes -= 1;
            moment.gateways[gateway].phase = Phase::Idle;
            moment.gateways[gateway].floor = 0;
        }
        Action::Arrive => {
            if let Some((expect, draft)) = moment.in_transit.take() {
                let _ = swap(world, moment, expect, &draft, None);
            }
        }
        Action::Failover { writes } => {
            world.met("writes lost");
            moment.left.failovers -= 1;
            for _ in 0..writes {
                moment.standing = moment.before.pop().flatten();
            }
            moment.now += FAILOVER;
        }
        Action::ClockBack => {
            moment.left.back -= 1;
            moment.now = moment.now.saturating_sub(STEP);
        }
        Action::ClockForward => {
            moment.left.forward -= 1;
            moment.now += STEP;
        }
    }
}

fn fingerprint(event: Event) -> Fingerprint {
    let of = event as u8 + 1;
    Fingerprint { key_id: "k".into(), digest: [of; 32], fields: vec![("/amount".into(), [of; 16])] }
}

fn response(status: u16) -> StoredResponse {
    StoredResponse { status, headers: Vec::new(), body: StoredBody::Full(Bytes::new()) }
}

/// The store: compares, stamps and writes. `by` is the fence of the claim that writes over itself.
fn swap(
    world: &World,
    moment: &mut Moment,
    expect: Expect,
    draft: &Draft,
    by: Option<u64>,
) -> Result<Record, Box<Option<Record>>> {
    let standing = moment.standing.as_ref();
    let expect = match (expect, standing) {
        (Expect::At { revision, lease }, Some(record)) if !world.fenced => {
            Expect::At { revision: Revision { fence: record.fence, ..revision }, lease }
        }
        (expect, _) => expect,
    };
    if !expect.holds(standing, at(moment.now)) {
        return Err(Box::new(moment.standing.clone()));
    }
    let mut written = draft.stamp(at(moment.now), standing);
    // What happened before decides nothing; kept, it would only tell paths apart that go on alike.
    written.history.clear();
    if let (Some(by), Some(record)) = (by, standing) {
        moment.broken.stale_write |= record.fence > by;
    }
    if let Some(Record { state: kept @ State::Succeeded { .. }, .. }) = standing {
        moment.broken.answer_changed |= *kept != written.state;
    }
    if matches!(draft.fence, Fence::Next { .. }) && draft.state == State::Processing {
        moment.fences.push(written.fence);
    }
    world.met_state(&written.state);
    moment.before.push(moment.standing.replace(written.clone()));
    if moment.before.len() > 2 {
        moment.before.remove(0);
    }
    Ok(written)
}

/// A write over the network: the reply, or nothing.
fn write(
    world: &World,
    moment: &mut Moment,
    net: Net,
    (expect, draft): (Expect, &Draft),
    by: Option<u64>,
) -> Option<Result<Record, Box<Option<Record>>>> {
    match net {
        Net::Fine => Some(swap(world, moment, expect, draft, by)),
        Net::ReplyLost => {
            moment.left.lost -= 1;
            let _ = swap(world, moment, expect, draft, by);
            None
        }
        Net::Late => {
            moment.left.late -= 1;
            moment.in_transit = Some((expect, draft.clone()));
            None
        }
    }
}

/// A turn of `Asking::claim`: decide over what was seen, write, look again.
fn claim(world: &World, moment: &mut Moment, gateway: usize, net: Net) {
    let Phase::Claiming { event, seen, now, again } = moment.gateways[gateway].phase.clone() else { return };
    let owner = Owner(format!("{gateway}.{}.{event:?}", moment.gateways[gateway].deliveries));
    let (print, plugin) = (fingerprint(event), PluginVersion { name: "json".into(), version: "1".into() });
    let me = Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "r" };
    let decision = on_request(seen.as_ref(), &me, at(now), &world.policy);
    world.met(word(&decision));
    let Decision::Claim(plan) = decision else {
        return settle(moment, gateway, event, &decision, seen.as_ref(), now);
    };
    if plan.ambiguous {
        world.met("second forward");
    }
    let draft = plan.draft(&me, moment.gateways[gateway].floor, &world.policy);
    if !world.claims_first && plan == Plan::first() {
        let claim = Claim::of(&draft.stamp(at(moment.now), None));
        moment.gateways[gateway].phase = Phase::Claimed { event, claim };
        return;
    }
    moment.gateways[gateway].phase = match write(world, moment, net, (plan.expect, &draft), None) {
        Some(Ok(record)) => {
            raise(moment, gateway, record.fence);
            Phase::Claimed { event, claim: Claim::of(&record) }
        }
        Some(Err(met)) => Phase::Claiming { event, seen: *met, now: moment.now, again: false },
        // The same write once more, as the same owner; then its sender is told to come again.
        None if !again => Phase::Claiming { event, seen, now, again: true },
        None => Phase::InDoubt { event },
    };
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Claim(_) => "Claim",
        Decision::Own => "Own",
        Decision::Busy { .. } => "Busy",
        Decision::Replay { .. } => "Replay",
        Decision::Mismatch { .. } => "Mismatch",
        Decision::Held { .. } => "Held",
    }
}

fn raise(moment: &mut Moment, gateway: usize, fence: u64) {
    let floor = &mut moment.gateways[gateway].floor;
    *floor = (*floor).max(fence + 1);
}

/// A decision that writes nothing.
fn settle(moment: &mut Moment, gateway: usize, event: Event, decision: &Decision, seen: Option<&Record>, now: u64) {
    moment.gateways[gateway].phase = Phase::Idle;
    match decision {
        Decision::Own => {
            if let Some(record) = seen {
                raise(moment, gateway, record.fence);
                moment.gateways[gateway].phase = Phase::Claimed { event, claim: Claim::of(record) };
            }
        }
        Decision::Busy { until } => {
            moment.broken.endless |= *until <= at(now);
            // Its sender comes again when that is over.
            moment.now = moment.now.max(until.as_micros() - at(0).as_micros());
        }
        Decision::Replay { response, .. } => {
            moment.broken.mixed |= seen.is_some_and(|record| record.fingerprint != fingerprint(event));
            tell(moment, event, response.status);
        }
        Decision::Mismatch { .. } | Decision::Held { .. } => moment.answers[event as usize] = Told::Refused,
        Decision::Claim(_) => {}
    }
}

/// Its sender gets an answer that the upstream gave once.
fn tell(moment: &mut Moment, event: Event, status: u16) {
    let told = &mut moment.answers[event as usize];
    if status != 200 {
        *told = Told::Refused;
        return;
    }
    if *told == Told::Nothing {
        *told = Told::Success { again: 1 };
    }
    let processed = moment.upstream.iter().any(|forward| forward.event == event && forward.processed);
    moment.broken.empty_success |= !processed;
}

/// `Dedupe::give_back_if_found`: nothing was sent for it, so it must not park the event.
fn give_back(world: &World, moment: &mut Moment, gateway: usize) {
    let Phase::InDoubt { event } = moment.gateways[gateway].phase else { return };
    let owner = Owner(format!("{gateway}.{}.{event:?}", moment.gateways[gateway].deliveries));
    moment.gateways[gateway].phase = Phase::Idle;
    let Some(record) = moment.standing.clone().filter(|record| record.owner == owner) else { return };
    if record.state == State::Processing {
        let claim = Claim::of(&record);
        let draft = on_outcome(&claim, Outcome::Unsent { error: String::new() }, &world.policy);
        let expect = claim.expect(Status::Processing, Lease::Any);
        if swap(world, moment, expect, &draft, Some(claim.fence)).is_ok() {
            world.met("given back");
        }
    }
}

fn beat(world: &World, moment: &mut Moment, gateway: usize) {
    let Phase::Claimed { claim, .. } = moment.gateways[gateway].phase.clone() else { return };
    moment.left.beats -= 1;
    let expect = claim.expect(Status::Processing, Lease::Live);
    let _ = swap(world, moment, expect, &claim.heartbeat(&world.policy), Some(claim.fence));
}

fn send(world: &World, moment: &mut Moment, gateway: usize, fate: Fate) {
    let Phase::Claimed { event, claim } = moment.gateways[gateway].phase.clone() else { return };
    let (sent, processed, outcome) = match fate {
        Fate::Answered(status) => (true, status == 200, Outcome::Answered(response(status))),
        Fate::Refused => (false, false, Outcome::Unsent { error: String::new() }),
        Fate::Broken { processed } => {
            (true, processed, Outcome::Ambiguous { reason: UnknownReason::Broken, error: String::new() })
        }
    };
    let left = &mut moment.left;
    match fate {
        Fate::Answered(500) => left.answered_500 -= 1,
        Fate::Answered(422) => left.answered_422 -= 1,
        Fate::Answered(_) => {}
        Fate::Refused => left.refused -= 1,
        Fate::Broken { .. } => left.broken -= 1,
    }
    if sent {
        let other = moment.upstream.iter().any(|forward| forward.event != event);
        moment.broken.mixed |= other && moment.left.failovers == world.budget.failovers;
        moment.upstream.push(Forward { event, fence: claim.fence, flagged: claim.ambiguous, processed });
    }
    moment.gateways[gateway].phase = Phase::Ended { event, claim, outcome };
}

/// `Dedupe::finish`: the sender waits for the first try only.
fn finish(world: &World, moment: &mut Moment, gateway: usize, net: Net) {
    let (event, claim, outcome) = match moment.gateways[gateway].phase.clone() {
        Phase::Ended { event, claim, outcome } => (Some(event), claim, outcome),
        Phase::Late { claim, outcome } => (None, claim, outcome),
        _ => return,
    };
    let written = write_outcome(world, moment, net, &claim, &outcome);
    if let Some(event) = event {
        match (&written, &outcome) {
            (Written::Superseded, _) => tell(moment, event, 200),
            (_, Outcome::Answered(response)) if response.status == 200 => tell(moment, event, 200),
            _ => {}
        }
    }
    let unwritten = matches!(written, Written::Unwritten);
    moment.gateways[gateway].phase = if unwritten { Phase::Late { claim, outcome } } else { Phase::Idle };
}

enum Written {
    Kept,
    Superseded,
    Lost,
    Unwritten,
}

/// `Dedupe::write_outcome`.
fn write_outcome(world: &World, moment: &mut Moment, net: Net, claim: &Claim, outcome: &Outcome) -> Written {
    let mut draft = on_outcome(claim, outcome.clone(), &world.policy);
    let mut expect = claim.expect(Status::Processing, Lease::Any);
    for _ in 0..2 {
        let met = match write(world, moment, net, (expect, &draft), Some(claim.fence)) {
            None => return Written::Unwritten,
            Some(Ok(_)) => return Written::Kept,
            Some(Err(met)) => met,
        };
        match *met {
            Some(record) if record.fence == claim.fence && record.state.status() == draft.state.status() => {
                return Written::Kept;
            }
            Some(record) if record.fence == claim.fence && record.state.status() == Status::Unknown => {
                expect = claim.expect(Status::Unknown, Lease::Any);
            }
            None if expect != Expect::Absent => {
                world.met("written anew");
                expect = Expect::Absent;
                draft.fence = Fence::Next { floor: claim.fence };
            }
            Some(Record { state: State::Succeeded { .. }, .. }) => {
                world.met("lease lost");
                return Written::Superseded;
            }
            _ => break,
        }
    }
    world.met("lease lost");
    Written::Lost
}
