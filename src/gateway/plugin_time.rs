//! How much time a tenant may spend in its plugins, and who may spend it. Time is an argument; cores share it without a lock.
//!
//! A call is charged when it has ended, whatever came of it: a plugin that fails costs as much as one that answers, and so does a
//! signature that is wrong. One that takes long is charged its whole budget as soon as that is seen, and given back the rest: else
//! many that began together would overdraw what none of them has been charged for yet. But what strangers spend must not shut out the senders that the tenant is there for. So an address
//! whose deliveries were genuine lately may spend all of the tenant's time; any other address only a quarter of it, and strangers
//! together only while half of it is left. Junk from one address is cut off at its quarter, and from many at the half that stays
//! for senders who are known. A new sender is a stranger until its first delivery is through, and so is every sender after a start.
//!
//! The tables have a fixed size and forget by being overwritten, so that nobody can make them grow. Two strangers may share a
//! place; which ones is not to be foreseen, since the hash is keyed anew by each process.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::model::TimeShare;

/// Addresses that are told apart.
const PLACES: usize = 256;

/// How long a genuine delivery vouches for its address.
const KNOWN_FOR: Duration = Duration::from_mins(10);

/// What one stranger may spend, as a part of the tenant's share.
const STRANGER_PART: u32 = 4;

/// One tenant's time. `now` is the time since the process began, everywhere.
pub struct PluginTime {
    all: Bucket,
    share: TimeShare,
    strangers: Box<[Bucket]>,
    /// Of addresses known: the high half tells them apart, the low half is the second of their last genuine delivery.
    known: Box<[AtomicU64]>,
    keys: RandomState,
}

/// Why a call may not begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// The tenant's time is used up, or what of it strangers may use.
    Tenant {
        /// Until there is some again.
        after: Duration,
    },
    /// This address used up what a stranger may use.
    Address {
        /// Until there is some again.
        after: Duration,
    },
}

impl PluginTime {
    /// All of it unspent.
    pub fn new(share: TimeShare) -> Self {
        Self {
            all: Bucket::default(),
            share,
            strangers: std::iter::repeat_with(Bucket::default).take(PLACES).collect(),
            known: std::iter::repeat_with(AtomicU64::default).take(PLACES).collect(),
            keys: RandomState::new(),
        }
    }

    /// Whether a delivery from an address may be looked at now.
    ///
    /// # Errors
    /// [`Spent`], with the time after which it may.
    pub fn allows(&self, from: IpAddr, now: Duration) -> Result<(), Spent> {
        let hash = self.hash(from);
        let per = self.share.per;
        match self.stranger(hash, now) {
            None => self.all.check(per, now).map_err(|after| Spent::Tenant { after }),
            Some(bucket) => {
                bucket.check(per, now).map_err(|after| Spent::Address { after })?;
                self.all.check(per / 2, now).map_err(|after| Spent::Tenant { after })
            }
        }
    }

    /// A call for an address may take so long.
    pub fn reserve(&self, from: IpAddr, time: Duration, now: Duration) {
        let hash = self.hash(from);
        let refill = self.refill(time);
        self.all.charge(refill, now);
        if let Some(bucket) = self.stranger(hash, now) {
            bucket.charge(refill.saturating_mul(STRANGER_PART), now);
        }
    }

    /// A call for an address took so long, of which so much was reserved. `genuine`: as far as the route can tell, the delivery is
    /// the sender's own.
    pub fn spend(&self, from: IpAddr, reserved: Duration, time: Duration, genuine: bool, now: Duration) {
        let hash = self.hash(from);
        let (more, back) = (self.refill(time.saturating_sub(reserved)), self.refill(reserved.saturating_sub(time)));
        self.all.charge(more, now);
        self.all.give_back(back);
        if let Some(bucket) = self.stranger(hash, now) {
            bucket.charge(more.saturating_mul(STRANGER_PART), now);
            bucket.give_back(back.saturating_mul(STRANGER_PART));
        }
        if genuine && let Some(slot) = place(&self.known, hash) {
            slot.store(tag(hash) | seconds(now), Ordering::Relaxed);
        }
    }

    /// How long it takes until so much time has come back.
    fn refill(&self, time: Duration) -> Duration {
        let (share, per) = (self.share.time.as_nanos().max(1), self.share.per.as_nanos());
        let nanos = time.as_nanos().saturating_mul(per) / share;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The bucket of an address that is not known.
    fn stranger(&self, hash: u64, now: Duration) -> Option<&Bucket> {
        place(&self.strangers, hash).filter(|_| !self.is_known(hash, now))
    }

    fn is_known(&self, hash: u64, now: Duration) -> bool {
        let slot = place(&self.known, hash).map_or(0, |slot| slot.load(Ordering::Relaxed));
        let since = seconds(now).saturating_sub(slot & u64::from(u32::MAX));
        slot != 0 && slot & TAG == tag(hash) && since < KNOWN_FOR.as_secs()
    }

    /// Whoever has an IPv6 address has a network of them.
    fn hash(&self, from: IpAddr) -> u64 {
        match from {
            IpAddr::V4(address) => self.keys.hash_one(address.octets()),
            IpAddr::V6(address) => self.keys.hash_one(u128::from(address) >> 64),
        }
    }
}

const TAG: u64 = !(u32::MAX as u64);

fn tag(hash: u64) -> u64 {
    hash & TAG
}

/// From one on, since 0 is an empty slot.
fn seconds(now: Duration) -> u64 {
    (now.as_secs() + 1) & u64::from(u32::MAX)
}

fn place<T>(table: &[T], hash: u64) -> Option<&T> {
    table.get(usize::try_from(hash & u64::from(u32::MAX)).unwrap_or(0) % table.len().max(1))
}

/// A bucket that refills with time, as the moment when it will be full again, in nanoseconds. It may be overdrawn, since a call's
/// cost is known when it has ended.
#[derive(Default)]
struct Bucket(AtomicU64);

impl Bucket {
    /// Whether anything is left of a bucket that takes `depth` to refill; else when there is.
    fn check(&self, depth: Duration, now: Duration) -> Result<(), Duration> {
        let owed = Duration::from_nanos(self.0.load(Ordering::Relaxed)).saturating_sub(now);
        if owed < depth { Ok(()) } else { Err(owed.saturating_sub(depth).max(Duration::from_millis(1))) }
    }

    fn charge(&self, refill: Duration, now: Duration) {
        let (refill, now) = (nanos(refill), nanos(now));
        let later = |full_at: u64| Some(full_at.max(now).saturating_add(refill));
        // The update cannot fail: it always has a next value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    fn give_back(&self, refill: Duration) {
        let earlier = |full_at: u64| Some(full_at.saturating_sub(nanos(refill)));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: TimeShare = TimeShare { time: Duration::from_millis(500), per: Duration::from_secs(1) };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn from(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// An address that shares no place with the others.
    fn apart(time: &PluginTime, others: &[IpAddr]) -> IpAddr {
        let slot = |address| time.hash(address) as u32 as usize % PLACES;
        let taken: Vec<_> = others.iter().map(|&address| slot(address)).collect();
        (0..=255).map(|last| IpAddr::from([198, 51, 100, last])).find(|&other| !taken.contains(&slot(other))).unwrap()
    }

    /// A known sender may spend all of it, and is told when there is some again.
    #[test]
    fn a_share_is_spent_and_refills() {
        let time = PluginTime::new(HALF);
        time.spend(from(1), ms(0), ms(0), true, ms(0));
        for _ in 0..20 {
            assert_eq!(time.allows(from(1), ms(0)), Ok(()));
            time.spend(from(1), ms(0), ms(25), true, ms(0));
        }
        assert_eq!(time.allows(from(1), ms(0)), Err(Spent::Tenant { after: ms(1) }), "500 ms of 500 ms");
        // Overdrawn by calls that were under way: it takes twice as long to come back.
        time.spend(from(1), ms(0), ms(100), true, ms(0));
        assert_eq!(time.allows(from(1), ms(100)), Err(Spent::Tenant { after: ms(100) }));
        assert_eq!(time.allows(from(1), ms(201)), Ok(()));
        // A minute of rest gives one burst, not a minute's.
        time.spend(from(1), ms(0), ms(500), true, ms(60_000));
        assert!(time.allows(from(1), ms(60_000)).is_err());
    }

    /// Junk from one address costs that address its deliveries, and nobody else.
    #[test]
    fn junk_from_one_address_does_not_starve_the_others() {
        let time = PluginTime::new(HALF);
        let (junk, sender) = (from(1), apart(&time, &[from(1)]));
        let mut served = Duration::ZERO;
        for at in (0..10_000).step_by(5).map(ms) {
            if time.allows(junk, at).is_ok() {
                time.spend(junk, ms(0), ms(25), false, at);
                served += ms(25);
            }
            assert_eq!(time.allows(sender, at), Ok(()), "at {at:?}");
        }
        assert!(served >= ms(1250) && served <= ms(1425), "a quarter of 5 s and one burst: {served:?}");
        assert!(matches!(time.allows(junk, ms(9_999)), Err(Spent::Address { .. })));
    }

    /// Junk from everywhere leaves half for those who are known.
    #[test]
    fn junk_from_many_addresses_leaves_half_to_known_senders() {
        let time = PluginTime::new(HALF);
        let sender = from(200);
        time.spend(sender, ms(0), ms(1), true, ms(0));
        for at in (0..10_000).step_by(5).map(ms) {
            for junk in (0..100).map(from) {
                if time.allows(junk, at).is_ok() {
                    time.spend(junk, ms(0), ms(25), false, at);
                }
            }
            assert_eq!(time.allows(sender, at), Ok(()), "at {at:?}");
        }
    }

    /// Also when they all begin before the first of them has ended.
    #[test]
    fn what_is_under_way_is_counted() {
        let time = PluginTime::new(HALF);
        let sender = from(200);
        time.spend(sender, ms(0), ms(1), true, ms(0));
        let begun: Vec<_> = (0..100)
            .map(from)
            .filter(|&junk| {
                let allowed = time.allows(junk, ms(0)).is_ok();
                if allowed {
                    time.reserve(junk, ms(25), ms(0));
                }
                allowed
            })
            .collect();
        assert_eq!((begun.len(), time.allows(sender, ms(0))), (10, Ok(())));
        // They took less than they might have.
        begun.iter().for_each(|&junk| time.spend(junk, ms(25), ms(1), false, ms(4)));
        assert_eq!(time.allows(from(101), ms(4)), Ok(()));
    }

    #[test]
    fn a_sender_is_known_for_a_while() {
        let time = PluginTime::new(HALF);
        time.spend(from(1), ms(0), ms(0), true, ms(5_000));
        let hash = time.hash(from(1));
        assert!(time.is_known(hash, ms(5_000)) && time.is_known(hash, ms(600_000)));
        assert!(!time.is_known(hash, ms(606_000)));
        assert!(!time.is_known(time.hash(from(2)), ms(5_000)));
        let network: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), "2001:db8::ffff:1".parse().unwrap()];
        assert_eq!(time.hash(network[0]), time.hash(network[1]));
    }
}
