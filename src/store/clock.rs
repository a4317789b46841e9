//! The clock of the stores that live in this process.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::event::Timestamp;

/// The machine's wall clock, which never steps back here: a lease that was over stays over, and what had expired stays so.
///
/// When the machine's clock is set back, time goes on from what was told last, at the speed of the steady clock. Standing still
/// until the wall clock catches up would keep every lease alive for as long.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    told: Mutex<Option<(Instant, Timestamp)>>,
}

impl WallClock {
    /// The time now.
    #[expect(
        clippy::disallowed_methods,
        reason = "an embedded store is its own authority on time: this is the store's clock"
    )]
    pub(super) fn now(&self) -> Timestamp {
        self.tell(Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn tell(&self, steady: Instant, wall: Duration) -> Timestamp {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = Timestamp::default().plus(wall);
        let now = match *told {
            Some((since, time)) => wall.max(time.plus(steady.saturating_duration_since(since))),
            None => wall,
        };
        *told = Some((steady, now));
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set back by an hour, the clock neither steps back nor stands still; set forward, it follows.
    #[test]
    fn a_clock_set_back_goes_on() {
        let (clock, start) = (WallClock::default(), Instant::now());
        let at = |after_s, wall_s| {
            let told = clock.tell(start + Duration::from_secs(after_s), Duration::from_secs(wall_s));
            told.as_micros() / 1_000_000
        };
        assert_eq!(at(0, 10_000), 10_000);
        assert_eq!(at(1, 6_401), 10_001);
        assert_eq!(at(31, 6_431), 10_031);
        assert_eq!(at(32, 20_000), 20_000);
    }
}
