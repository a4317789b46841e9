//! An event's other names, as pure functions like those of the machine: what points at an event, and when such a pointer is free.
//!
//! A name is a record that points at its event's own key. Whoever forwards has written every name *after* his claim stood. So whoever
//! finds a name, then finds its event free, and then changes the name at the revision that he found, takes it from nobody.

use std::time::Duration;

use crate::event::{ScopeKey, Timestamp};

use super::machine::{Claim, Plan};
use super::policy::Policy;
use super::record::{Draft, Expect, FailureClass, Fence, Lease, Record, State, Ttl};

/// How much longer a name lives than what is known of its event: an event may end a little later than its last renewal.
const SLACK: Duration = Duration::from_hours(24);

/// What a name that stands means to another delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It names nothing that ever reached the upstream, or may: it may be taken.
    Free,
    /// Its event is not in the store, which may have lost it: the name is left alone for a lease.
    Until(Timestamp),
    /// It is an event's, and so is the delivery.
    Taken,
}

/// The record that makes a name point at a claimed event.
pub fn pointer(claim: &Claim, to: &ScopeKey, floor: u64, policy: &Policy) -> Draft {
    // An event that an operator ends late, when its record is nearly over, is remembered for a whole window from there.
    let ttl = policy.open_ttl() + policy.window.max(SLACK);
    Draft {
        state: State::Alias { of: to.clone() },
        fingerprint: claim.fingerprint.clone(),
        owner: claim.owner.clone(),
        fence: Fence::Next { floor },
        attempt: claim.attempt,
        lease: Some(policy.lease),
        ttl: Ttl::AtLeast(ttl),
        released: false,
        ambiguous: false,
        error: None,
        plugin: claim.plugin.clone(),
        route: claim.route.clone(),
        history: Vec::new(),
        request: None,
    }
}

/// What `pointer` means, whose event holds `event` at `now`.
pub fn on_pointer(pointer: &Record, event: Option<&Record>, now: Timestamp) -> Standing {
    match event {
        Some(event) if nothing_sent(event) => Standing::Free,
        Some(_) => Standing::Taken,
        None if now >= pointer.lease_until => Standing::Free,
        None => Standing::Until(pointer.lease_until),
    }
}

/// Nothing of the event ever reached the upstream, and no person had a hand in it: it is as good as not there.
pub fn nothing_sent(event: &Record) -> bool {
    let unsent = matches!(event.state, State::Failed { class: FailureClass::Unsent, .. });
    unsent && event.attempt == 1 && !event.ambiguous && !event.released
}

/// What must stand for a name to be rewritten or taken: exactly what was seen. A pointer's lease is not its event's.
pub fn over(seen: &Record) -> Expect {
    Expect::At { revision: seen.revision(), lease: Lease::Any }
}

/// The claim of an event over a name that is free.
pub fn claim_over(pointer: &Record) -> Plan {
    Plan { expect: over(pointer), ..Plan::first() }
}
