//! What must hold at every step, and at the end of every path.

use stateright::{Model, Property};

use super::states::{Moment, Phase, Told};
use super::world::World;

pub const ONCE: &str =
    "I1: one effect, unless the forward says that it may be a second one or the store lost what it had acknowledged";
pub const OTHERS: &str = "I5: another event is neither forwarded nor given the first one's answer";
pub const FENCES: &str = "I6: every claim has a higher fence than all before it";
pub const STALE: &str = "I6: an older fence changes nothing";
pub const KEPT: &str = "I4: a kept answer does not change";
pub const BACKED: &str = "I2: whoever is told of a success has been processed";
pub const TIMELY: &str = "D4: who is told to wait is told a time to come";
pub const ENDS: &str = "I9: when nothing more happens, every sender has an answer and no gateway is at work";
pub const ANSWERED: &str = "I9: every sender is answered in the end";
pub const RUNS: &str = "an event succeeds";

pub fn all() -> Vec<Property<World>> {
    vec![
        Property::always(ONCE, |world: &World, moment: &Moment| {
            let unflagged = moment.upstream.iter().filter(|forward| forward.processed && !forward.flagged).count();
            let lost = usize::from(world.budget.failovers - moment.left.failovers);
            unflagged <= 1 + lost
        }),
        Property::always(OTHERS, |_: &World, moment: &Moment| !moment.broken.mixed),
        Property::always(FENCES, |_: &World, moment: &Moment| moment.fences.windows(2).all(|two| two[0] < two[1])),
        Property::always(STALE, |_: &World, moment: &Moment| !moment.broken.stale_write),
        Property::always(KEPT, |_: &World, moment: &Moment| !moment.broken.answer_changed),
        Property::always(BACKED, |_: &World, moment: &Moment| !moment.broken.empty_success),
        Property::always(TIMELY, |_: &World, moment: &Moment| !moment.broken.endless),
        Property::always(ENDS, |world: &World, moment: &Moment| {
            let mut actions = Vec::new();
            world.actions(moment, &mut actions);
            let idle = moment.gateways.iter().all(|gateway| gateway.phase == Phase::Idle);
            !actions.is_empty() || (idle && is_answered(world, moment))
        }),
        Property::eventually(ANSWERED, is_answered),
        Property::sometimes(RUNS, |_: &World, moment: &Moment| {
            moment.answers.iter().any(|told| matches!(told, Told::Success { .. }))
        }),
    ]
}

/// Every sender that comes knows what became of its event.
pub fn is_answered(world: &World, moment: &Moment) -> bool {
    let [a, b] = moment.answers;
    a != Told::Nothing && (b != Told::Nothing || world.budget.conflicts == 0)
}

/// And nobody comes once more for a replay.
pub fn is_over(world: &World, moment: &Moment) -> bool {
    let comes = |told: &Told| matches!(told, Told::Success { again } if *again > 0);
    is_answered(world, moment) && !moment.answers.iter().any(comes)
}
