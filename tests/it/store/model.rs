//! Random sequences of writes: each store must do what the pure rules say, and what the memory store does.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use onceward::event::{Fingerprint, PluginVersion, StoredBody, StoredResponse, Timestamp};
use onceward::idempotency::history::{Step, Verb};
use onceward::idempotency::record::{FailureClass, Status, UnknownReason};
use onceward::idempotency::{Draft, Expect, Fence, Lease, Owner, Record, Revision, State, Ttl};
use onceward::store::{Store, Swap};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Bench, HOUR, key};

/// What a step demands, relative to what stands: absolute fences would never be met.
#[derive(Clone, Debug)]
enum Demand {
    Absent,
    Standing(Lease),
    OlderFence(Lease),
    OtherStatus(Status, Lease),
}

impl Demand {
    fn over(&self, standing: Option<&Record>) -> Expect {
        let none = Revision { fence: 1, status: Status::Processing };
        let revision = standing.map_or(none, Record::revision);
        match *self {
            Self::Absent => Expect::Absent,
            Self::Standing(lease) => Expect::At { revision, lease },
            Self::OlderFence(lease) => {
                Expect::At { revision: Revision { fence: revision.fence.saturating_sub(1), ..revision }, lease }
            }
            Self::OtherStatus(status, lease) => Expect::At { revision: Revision { status, ..revision }, lease },
        }
    }
}

fn a_lease() -> impl Strategy<Value = Lease> {
    prop_oneof![Just(Lease::Live), Just(Lease::Over), Just(Lease::Any)]
}

fn a_demand() -> impl Strategy<Value = Demand> {
    let statuses = [Status::Processing, Status::Succeeded, Status::Failed, Status::Unknown];
    prop_oneof![
        2 => Just(Demand::Absent),
        6 => a_lease().prop_map(Demand::Standing),
        1 => a_lease().prop_map(Demand::OlderFence),
        1 => (proptest::sample::select(statuses.to_vec()), a_lease())
            .prop_map(|(status, lease)| Demand::OtherStatus(status, lease)),
    ]
}

fn octets(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

fn a_response() -> impl Strategy<Value = StoredResponse> {
    let body = prop_oneof![
        octets(100).prop_map(StoredBody::Full),
        any::<String>().prop_map(StoredBody::Reference),
        Just(StoredBody::Omitted)
    ];
    (any::<u16>(), vec((any::<String>(), octets(20)), 0..4), body).prop_map(|(status, headers, body)| StoredResponse {
        status,
        headers,
        body,
    })
}

fn a_state() -> impl Strategy<Value = State> {
    use UnknownReason::{Broken, Exhausted, LeaseOver, Timeout};
    let classes = vec![FailureClass::Unsent, FailureClass::Transient, FailureClass::Terminal];
    prop_oneof![
        2 => Just(State::Processing),
        1 => a_response().prop_map(|response| State::Succeeded { response }),
        1 => (proptest::sample::select(classes), proptest::option::of(a_response()))
            .prop_map(|(class, response)| State::Failed { class, response }),
        1 => proptest::sample::select(vec![Timeout, Broken, LeaseOver, Exhausted])
            .prop_map(|reason| State::Unknown { reason }),
        1 => any::<String>().prop_map(|part| State::Alias { of: key(&part) }),
        1 => (vec(any::<String>(), 0..3), any::<u64>())
            .prop_map(|(fields, count)| State::Mismatch { fields, count, first_at: Timestamp::from_micros(count) }),
    ]
}

/// Spans are either nothing or too long to end here, so that no result hangs on how fast a store is.
fn a_span() -> impl Strategy<Value = Duration> {
    prop_oneof![1 => Just(Duration::ZERO), 5 => (1..1000_u64).prop_map(|hours| HOUR * u32::try_from(hours).unwrap_or(1))]
}

fn a_draft() -> impl Strategy<Value = Draft> {
    let fingerprint = (any::<String>(), any::<[u8; 32]>(), vec((any::<String>(), any::<[u8; 16]>()), 0..4))
        .prop_map(|(key_id, digest, fields)| Fingerprint { key_id, digest, fields });
    let fence = prop_oneof![Just(Fence::Keep), (0..1_u64 << 52).prop_map(|floor| Fence::Next { floor })];
    let ttl = prop_oneof![a_span().prop_map(Ttl::AtLeast), a_span().prop_map(Ttl::Exactly)];
    let plugin = (any::<String>(), any::<String>()).prop_map(|(name, version)| PluginVersion { name, version });
    let said = (any::<bool>(), any::<bool>(), proptest::option::of(any::<String>()), plugin);
    let numbers = (fence, any::<u32>(), proptest::option::of(a_span()), ttl);
    let steps = (any::<String>(), any::<u64>()).prop_map(|(by, at)| Step::Operator {
        verb: Verb::Redeliver,
        by,
        at: Timestamp::from_micros(at),
    });
    let kept = (any::<String>(), vec(steps, 0..3), proptest::option::of(octets(50)));
    (a_state(), fingerprint, any::<String>(), numbers, said, kept).prop_map(
        |(
            state,
            fingerprint,
            owner,
            (fence, attempt, lease, ttl),
            (released, ambiguous, error, plugin),
            (route, history, request),
        )| Draft {
            state,
            fingerprint,
            owner: Owner(owner),
            fence,
            attempt,
            lease,
            ttl,
            released,
            ambiguous,
            error,
            plugin,
            route,
            history,
            request,
        },
    )
}

/// One step on one store: the write must come out as the pure rules say over what stood, stamped by the store's own time.
async fn step(store: &dyn Store, name: &str, demand: &Demand, draft: &Draft) -> bool {
    let before = store.peek(&key(name)).await.expect("an answer");
    let standing = before.current.as_ref();
    let expect = demand.over(standing);
    match store.swap(&key(name), expect, draft).await.expect("an answer") {
        Swap::Done(record) => {
            let now = stamped_at(&record, draft, standing, before.now);
            assert!(expect.holds(standing, now), "written over {standing:?}");
            assert_eq!(*record, draft.stamp(now, standing));
            let after = store.peek(&key(name)).await.expect("an answer");
            assert_eq!(after.current, Some(*record).filter(|record| record.expires_at > after.now));
            true
        }
        Swap::Refused(seen) => {
            assert_eq!(seen.current.as_ref(), standing, "what stood is what is told");
            assert!(!expect.holds(standing, seen.now), "refused over {standing:?}");
            false
        }
    }
}

/// The store's time at the write, from whatever the write stamped with it.
fn stamped_at(record: &Record, draft: &Draft, standing: Option<&Record>, before: Timestamp) -> Timestamp {
    let minus = |end: Timestamp, span: Duration| {
        Timestamp::from_micros(end.as_micros() - u64::try_from(span.as_micros()).unwrap_or(0))
    };
    match (record.finished_at, draft.lease, draft.ttl) {
        (Some(now), ..) => now,
        (_, Some(lease), _) => minus(record.lease_until, lease),
        (.., Ttl::Exactly(ttl)) => minus(record.expires_at, ttl),
        _ if matches!(draft.fence, Fence::Next { .. }) || standing.is_none() => record.started_at,
        (.., Ttl::AtLeast(ttl)) if standing.is_none_or(|old| record.expires_at > old.expires_at) => {
            minus(record.expires_at, ttl)
        }
        // A heartbeat that changes no time: any will do.
        _ => before,
    }
}

fn agree(bench: impl Future<Output = Bench>, cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let bench = runtime.block_on(bench);
    let (store, model) = (bench.store(), runtime.block_on(Bench::memory()).store());
    let case = Cell::new(0_u32);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let steps = vec((a_demand(), a_draft()), 1..25);
    let outcome = runner.run(&steps, |steps| {
        case.set(case.get() + 1);
        let name = case.get().to_string();
        runtime.block_on(async {
            for (demand, draft) in &steps {
                let written = step(&*store, &name, demand, draft).await;
                assert_eq!(written, step(&*model, &name, demand, draft).await, "the model disagrees");
            }
        });
        Ok(())
    });
    outcome.expect("the store keeps to the rules");
}

/// The Lua script decides and stamps as the pure rules do.
#[test]
fn redis_keeps_to_the_rules() {
    agree(Bench::redis(), 128);
}

/// A row is read back as it was written, and replaced whole.
#[test]
fn sqlite_keeps_to_the_rules() {
    agree(Bench::sqlite(), 64);
}

/// The server's function decides and stamps as the pure rules do.
#[test]
fn postgres_keeps_to_the_rules() {
    agree(Bench::postgres(), 96);
}

/// What a front answers is what the store behind it would have said, also where a success is written over.
#[test]
fn a_front_keeps_to_the_rules() {
    agree(Bench::fronted(), 64);
}
