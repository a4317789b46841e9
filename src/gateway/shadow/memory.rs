//! Which keys went together, as far back as a bound allows: digests only, so that no value is kept.

use std::collections::{HashMap, VecDeque};

/// Events remembered; then the oldest are forgotten. Some megabytes for each candidate.
const EVENTS_MAX: usize = 20_000;

/// The start of a key's digest.
pub(super) type Name = [u8; 16];

/// What an event's two keys say about those seen before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Met {
    /// The candidate gave this key to another event: two events would be taken for one.
    pub collision: bool,
    /// The candidate gave this event another key before: a redelivery would be taken for a new event.
    pub split: bool,
}

/// The keys seen.
#[derive(Default)]
pub(super) struct Memory {
    by_active: HashMap<Name, Name>,
    by_candidate: HashMap<Name, Name>,
    /// Oldest first.
    order: VecDeque<(Name, Name)>,
}

impl Memory {
    /// Takes one event's keys in. Those that went together before say nothing new.
    pub fn meet(&mut self, active: Name, candidate: Name) -> Met {
        let before = self.by_active.get(&active);
        if before == Some(&candidate) {
            return Met::default();
        }
        let split = before.is_some();
        let collision = self.by_candidate.get(&candidate).is_some_and(|known| *known != active);
        self.by_active.insert(active, candidate);
        self.by_candidate.entry(candidate).or_insert(active);
        self.order.push_back((active, candidate));
        if self.order.len() > EVENTS_MAX
            && let Some((active, candidate)) = self.order.pop_front()
        {
            self.by_active.remove(&active);
            self.by_candidate.remove(&candidate);
        }
        Met { collision, split }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        (number as u128).to_be_bytes()
    }

    const NEITHER: Met = Met { collision: false, split: false };

    #[test]
    fn collisions_and_splits_are_seen_once_each() {
        let mut memory = Memory::default();
        assert_eq!(memory.meet(name(1), name(7)), NEITHER);
        assert_eq!(memory.meet(name(1), name(7)), NEITHER, "a redelivery");
        assert_eq!(memory.meet(name(2), name(7)), Met { collision: true, split: false });
        assert_eq!(memory.meet(name(2), name(7)), NEITHER, "known already");
        assert_eq!(memory.meet(name(1), name(8)), Met { collision: false, split: true });
        assert_eq!(memory.meet(name(3), name(9)), NEITHER);
    }

    #[test]
    fn it_stays_small() {
        let mut memory = Memory::default();
        for number in 0..3 * EVENTS_MAX {
            assert_eq!(memory.meet(name(number), name(number)), NEITHER);
        }
        assert_eq!(memory.order.len(), EVENTS_MAX);
        assert_eq!((memory.by_active.len(), memory.by_candidate.len()), (EVENTS_MAX, EVENTS_MAX));
        assert_eq!(memory.meet(name(0), name(1)), NEITHER, "both were forgotten");
    }
}
