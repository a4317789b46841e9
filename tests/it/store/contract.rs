//! What every store promises, run against each of them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onceward::event::{Fingerprint, KeyKind, ScopeKey, StoredBody, StoredResponse};
use onceward::idempotency::record::{FailureClass, Status, UnknownReason};
use onceward::idempotency::{Draft, Expect, Fence, Lease, Owner, State, Ttl};
use onceward::store::{Meta, Swap};

use super::{Bench, HOUR, TIMEOUT, at, at_fence, claim, done, eventually, heartbeat, key, refused, success};

promises! {
    one_of_fifty_claims_wins,
    a_refusal_says_what_stands,
    a_heartbeat_keeps_the_revision_and_needs_a_live_lease,
    a_takeover_needs_the_lease_over,
    a_finalise_needs_only_its_own_revision,
    an_older_fence_changes_nothing,
    fences_rise_over_a_forgotten_record,
    a_later_end_stands_unless_it_is_set,
    at_its_end_a_record_is_there_or_free,
    one_claim_follows_an_end,
    any_key_has_its_own_record,
    any_octets_come_back,
    a_state_leaves_nothing_to_the_next,
    meta_is_made_once,
    a_lost_reply_is_found_by_its_owner,
    the_store_says_that_it_is_well,
}

/// Fifty callers on four threads, each with a handle of its own: one wins, and the others are told who.
async fn one_of_fifty_claims_wins(bench: &Bench) {
    let threads = (0..4).map(|thread| {
        let store = bench.store();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(futures::future::join_all((0..13).map(|task| {
                let store = store.clone();
                async move {
                    let owner = format!("{thread}.{task}");
                    store.swap(&key("k"), Expect::Absent, &claim(&owner, HOUR)).await.expect("an answer")
                }
            })))
        })
    });
    let threads = threads.collect::<Vec<_>>();
    let swaps = threads.into_iter().flat_map(|thread| thread.join().expect("the callers end")).collect::<Vec<_>>();
    let (won, lost): (Vec<_>, Vec<_>) = swaps.into_iter().partition(|swap| matches!(swap, Swap::Done(_)));
    let winners = won.into_iter().map(done).collect::<Vec<_>>();
    assert_eq!(winners.len(), 1);
    assert_eq!(lost.len(), 51);
    assert!(lost.into_iter().all(|swap| refused(swap).as_ref() == winners.first()));
}

async fn a_refusal_says_what_stands(bench: &Bench) {
    let store = bench.store();
    let nothing = at_fence(1, Status::Processing, Lease::Any);
    assert_eq!(refused(store.swap(&key("k"), nothing, &heartbeat("a", HOUR)).await.expect("an answer")), None);
    let first = done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let swap = store.swap(&key("k"), Expect::Absent, &claim("b", HOUR)).await.expect("an answer");
    let Swap::Refused(seen) = swap else { unreachable!("claimed twice") };
    assert_eq!(seen.current, Some(first.clone()));
    assert!(seen.now >= first.started_at);
    assert_eq!(store.peek(&key("k")).await.expect("an answer").current, Some(first));
}

async fn a_heartbeat_keeps_the_revision_and_needs_a_live_lease(bench: &Bench) {
    let store = bench.store();
    let first = done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let beat = heartbeat("a", Duration::ZERO);
    let over = done(store.swap(&key("k"), at(&first, Lease::Live), &beat).await.expect("an answer"));
    assert_eq!(over.revision(), first.revision());
    assert_eq!(over.started_at, first.started_at);
    let late = store.swap(&key("k"), at(&first, Lease::Live), &heartbeat("a", HOUR)).await.expect("an answer");
    assert_eq!(refused(late), Some(over));
}

async fn a_takeover_needs_the_lease_over(bench: &Bench) {
    let store = bench.store();
    let lease = Duration::from_millis(300);
    let first = done(store.swap(&key("k"), Expect::Absent, &claim("a", lease)).await.expect("an answer"));
    let over = at(&first, Lease::Over);
    let early = store.swap(&key("k"), over, &claim("b", HOUR)).await.expect("an answer");
    let Swap::Refused(seen) = early else { unreachable!("taken over while live") };
    assert!(seen.now < first.lease_until);
    let second = eventually("the lease ends", async || {
        match store.swap(&key("k"), over, &claim("b", HOUR)).await.expect("an answer") {
            Swap::Done(record) => Some(record),
            Swap::Refused(seen) => {
                assert!(seen.now < first.lease_until, "refused after the lease");
                None
            }
        }
    })
    .await;
    assert!(second.started_at >= first.lease_until && second.fence > first.fence);
    // A renewed lease is nobody's to take, whatever the taker saw before.
    let again = store.swap(&key("k"), at(&second, Lease::Over), &claim("c", HOUR)).await.expect("an answer");
    assert_eq!(refused(again), Some(*second));
}

async fn a_finalise_needs_only_its_own_revision(bench: &Bench) {
    let store = bench.store();
    for (name, lease) in [("live", HOUR), ("over", Duration::ZERO)] {
        let first = done(store.swap(&key(name), Expect::Absent, &claim("a", lease)).await.expect("an answer"));
        let end = success("a", b"{}");
        let last = done(store.swap(&key(name), at(&first, Lease::Any), &end).await.expect("an answer"));
        assert_eq!((last.fence, last.lease_until), (first.fence, first.lease_until));
        assert!(last.finished_at.is_some());
        // Once is enough.
        let twice = store.swap(&key(name), at(&first, Lease::Any), &end).await.expect("an answer");
        assert_eq!(refused(twice), Some(last));
    }
}

async fn an_older_fence_changes_nothing(bench: &Bench) {
    let store = bench.store();
    let old = done(store.swap(&key("k"), Expect::Absent, &claim("a", Duration::ZERO)).await.expect("an answer"));
    let new = done(store.swap(&key("k"), at(&old, Lease::Over), &claim("b", HOUR)).await.expect("an answer"));
    for lease in [Lease::Live, Lease::Over, Lease::Any] {
        for draft in [heartbeat("a", HOUR), success("a", b"late"), claim("a", HOUR)] {
            let late = store.swap(&key("k"), at(&old, lease), &draft).await.expect("an answer");
            assert_eq!(refused(late), Some(new.clone()));
        }
    }
    assert_eq!(store.peek(&key("k")).await.expect("an answer").current, Some(new));
}

/// The fence of a key rises although its record was forgotten: by the clock, and by the caller's own mark where that is higher.
async fn fences_rise_over_a_forgotten_record(bench: &Bench) {
    let store = bench.store();
    let brief = Draft { ttl: Ttl::Exactly(Duration::from_micros(1)), ..claim("a", HOUR) };
    let mut last = 0;
    for _ in 0..20 {
        let record = eventually("the record is forgotten", async || {
            match store.swap(&key("k"), Expect::Absent, &brief).await.expect("an answer") {
                Swap::Done(record) => Some(record),
                Swap::Refused(_) => None,
            }
        })
        .await;
        assert!(record.fence > last, "{} after {last}", record.fence);
        last = record.fence;
    }
    // 16 digits and more must stay exact.
    let floor = last + 3_600_000_000_001;
    let high = Draft { fence: Fence::Next { floor }, ..claim("b", Duration::ZERO) };
    let record = done(store.swap(&key("high"), Expect::Absent, &high).await.expect("an answer"));
    assert_eq!(record.fence, floor);
    let next = done(store.swap(&key("high"), at(&record, Lease::Over), &claim("c", HOUR)).await.expect("an answer"));
    assert_eq!(next.fence, floor + 1);
}

async fn a_later_end_stands_unless_it_is_set(bench: &Bench) {
    let store = bench.store();
    let minute = Duration::from_secs(60);
    let first = done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    assert_eq!(first.expires_at, first.started_at.plus(HOUR));
    let beat = Draft { ttl: Ttl::AtLeast(minute), ..heartbeat("a", HOUR) };
    let kept = done(store.swap(&key("k"), at(&first, Lease::Live), &beat).await.expect("an answer"));
    assert_eq!(kept.expires_at, first.expires_at);
    let beat = Draft { ttl: Ttl::AtLeast(HOUR * 2), ..heartbeat("a", HOUR) };
    let longer = done(store.swap(&key("k"), at(&first, Lease::Live), &beat).await.expect("an answer"));
    assert!(longer.expires_at >= first.started_at.plus(HOUR * 2));
    let end = Draft { ttl: Ttl::Exactly(minute), ..success("a", b"") };
    let last = done(store.swap(&key("k"), at(&first, Lease::Any), &end).await.expect("an answer"));
    assert_eq!(last.expires_at, last.finished_at.expect("it ended").plus(minute));
}

/// Whenever it is asked, the store gives the record before its end and nothing from then on, by the time it tells itself.
async fn at_its_end_a_record_is_there_or_free(bench: &Bench) {
    let store = bench.store();
    let draft = Draft { ttl: Ttl::Exactly(Duration::from_millis(60)), ..claim("a", HOUR) };
    let record = done(store.swap(&key("k"), Expect::Absent, &draft).await.expect("an answer"));
    let mut seen_there = 0;
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        let seen = store.peek(&key("k")).await.expect("an answer");
        assert_eq!(seen.current.is_some(), seen.now < record.expires_at, "at {:?}", seen.now);
        let renewal = heartbeat("a", HOUR);
        if seen.current.is_none() {
            let late = store.swap(&key("k"), at(&record, Lease::Any), &renewal).await.expect("an answer");
            assert_eq!(refused(late), None, "what has expired is written by nobody");
            assert!(seen_there > 0, "the record was never seen");
            return;
        }
        seen_there += 1;
    }
    unreachable!("the record never expired");
}

/// Many who try at the end of a window: one of them claims.
async fn one_claim_follows_an_end(bench: &Bench) {
    let store = bench.store();
    let draft = Draft { ttl: Ttl::Exactly(Duration::from_millis(50)), ..success("a", b"old") };
    let first = done(store.swap(&key("k"), Expect::Absent, &draft).await.expect("an answer"));
    let tries = (0..20).map(|task| {
        let (store, first) = (store.clone(), &first);
        async move {
            loop {
                let owner = format!("{task}");
                match store.swap(&key("k"), Expect::Absent, &claim(&owner, HOUR)).await.expect("an answer") {
                    Swap::Done(record) => return Some(record),
                    Swap::Refused(seen) if seen.current.as_ref() == Some(first) => {
                        assert!(seen.now < first.expires_at);
                        tokio::task::yield_now().await;
                    }
                    Swap::Refused(_) => return None,
                }
            }
        }
    });
    let winners = futures::future::join_all(tries).await.into_iter().flatten().collect::<Vec<_>>();
    assert_eq!(winners.len(), 1);
}

/// Keys of any text, of every kind and namespace, are told apart and may be asked for again.
async fn any_key_has_its_own_record(bench: &Bench) {
    let parts: [&[&str]; 16] = [
        &[],
        &[""],
        &["", ""],
        &["\0"],
        &["\0\0"],
        &["{}"],
        &["{acme}:x"],
        &["a|b"],
        &["a", "b"],
        &["a\\", "b"],
        &["a\\|b"],
        &["sha256-00"],
        &[" a"],
        &["ключ \u{fffd}\u{10ffff}"],
        &["'; DROP TABLE idempotency_records; --", "\r\n*1\r\n"],
        &[],
    ];
    let long = "x".repeat(512);
    let mut keys = HashSet::new();
    for parts in parts.into_iter().chain([&[long.as_str()] as &[&str]]) {
        for kind in [KeyKind::Key, KeyKind::Alias, KeyKind::Body] {
            for (scope, namespace) in
                [("pay", ""), ("pay", "n"), ("pay", "n:a"), ("pay", "n@m"), ("pay@n", ""), ("p", "n")]
            {
                keys.insert(ScopeKey {
                    tenant: "acme".into(),
                    scope: scope.into(),
                    namespace: namespace.into(),
                    kind,
                    parts: parts.iter().map(|&part| part.to_owned()).collect(),
                });
            }
        }
    }
    // The two that look alike when joined without care.
    for (namespace, part) in [("n:a", "b"), ("n", "a:b")] {
        let parts = vec![part.to_owned()];
        keys.insert(ScopeKey { namespace: namespace.into(), parts, ..key("") });
    }
    let store = bench.store();
    for (at, key) in keys.iter().enumerate() {
        let draft = claim(&at.to_string(), HOUR);
        done(store.swap(key, Expect::Absent, &draft).await.expect("an answer"));
    }
    for (at, key) in keys.iter().enumerate() {
        let seen = store.peek(key).await.expect("an answer").current.expect("the record");
        assert_eq!(seen.owner, Owner(at.to_string()), "{key:?}");
    }
}

async fn any_octets_come_back(bench: &Bench) {
    let store = bench.store();
    let all = (0..=255).collect::<Vec<u8>>();
    let bodies = [
        StoredBody::Full(Bytes::new()),
        StoredBody::Full(Bytes::from(all.clone())),
        StoredBody::Full(Bytes::from(vec![0xff; 300_000])),
        StoredBody::Reference("pi_\0\"\u{fffd}".into()),
        StoredBody::Omitted,
    ];
    for (at, body) in bodies.into_iter().enumerate() {
        let headers = vec![
            ("x-odd".to_owned(), Bytes::from(all.clone())),
            ("set-cookie".to_owned(), Bytes::from_static(b"a=1")),
            ("set-cookie".to_owned(), Bytes::from_static(b"b=2, \"c\"")),
            ("x-empty".to_owned(), Bytes::new()),
        ];
        let response = StoredResponse { status: 599, headers, body };
        let fields = vec![(String::new(), [0; 16]), ("/a\0\u{fffd}\"".to_owned(), [0xff; 16])];
        let draft = Draft {
            state: State::Failed { class: FailureClass::Terminal, response: Some(response) },
            fingerprint: Fingerprint { key_id: "k:1:".into(), digest: [0xab; 32], fields },
            error: Some("\0 went\nwrong".into()),
            ambiguous: true,
            released: true,
            attempt: u32::MAX,
            ..success("own\0er", b"")
        };
        let key = key(&at.to_string());
        let record = done(store.swap(&key, Expect::Absent, &draft).await.expect("an answer"));
        assert_eq!(record.state, draft.state);
        assert_eq!(record.fingerprint, draft.fingerprint);
        assert_eq!(store.peek(&key).await.expect("an answer").current, Some(record));
    }
}

/// Nothing of a state is left when another follows: not its answer, not its reason, not its end.
async fn a_state_leaves_nothing_to_the_next(bench: &Bench) {
    let store = bench.store();
    let failed = |response| State::Failed { class: FailureClass::Transient, response };
    let response =
        StoredResponse { status: 503, headers: Vec::new(), body: StoredBody::Full(Bytes::from_static(b"no")) };
    let reference = StoredResponse { body: StoredBody::Reference("r".into()), ..response.clone() };
    let base = success("a", b"yes");
    let drafts = [
        base.clone(),
        Draft { state: failed(Some(response)), error: Some("bad".into()), ..base.clone() },
        Draft { state: State::Unknown { reason: UnknownReason::Broken }, ..base.clone() },
        Draft { state: State::Succeeded { response: reference }, ..base.clone() },
        Draft { state: failed(None), ..base },
        claim("a", HOUR),
        heartbeat("a", HOUR),
    ];
    let mut standing = done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    for draft in drafts.iter().chain(drafts.iter().rev()) {
        let record = done(store.swap(&key("k"), at(&standing, Lease::Any), draft).await.expect("an answer"));
        let seen = store.peek(&key("k")).await.expect("an answer").current.expect("the record");
        assert_eq!(seen, record);
        assert_eq!((&seen.state, &seen.error), (&draft.state, &draft.error));
        standing = seen;
    }
}

async fn meta_is_made_once(bench: &Bench) {
    let store = bench.store();
    let offer = |seed: u8| Meta { epoch: format!("epoch-{seed}"), digest_key: [seed; 32] };
    let answers = futures::future::join_all((1..=20).map(|seed| {
        let store = bench.store();
        async move { store.meta(offer(seed)).await.expect("an answer").meta }
    }))
    .await;
    let first = answers.first().expect("answers");
    assert!(answers.iter().all(|answer| answer == first));
    assert_ne!((1..=20).any(|seed| *first == offer(seed)), bench.has_meta);
    assert!(store.meta(offer(99)).await.expect("an answer").meta == *first);
}

/// Who repeats a claim whose reply was lost meets the own owner token, with the fence to go on under.
async fn a_lost_reply_is_found_by_its_owner(bench: &Bench) {
    let store = bench.store();
    let draft = claim("mine", HOUR);
    let lost = done(store.swap(&key("k"), Expect::Absent, &draft).await.expect("an answer"));
    let found = refused(store.swap(&key("k"), Expect::Absent, &draft).await.expect("an answer")).expect("the record");
    assert_eq!((found.owner.0.as_str(), found.fence), ("mine", lost.fence));
    done(store.swap(&key("k"), at(&found, Lease::Any), &success("mine", b"{}")).await.expect("an answer"));
}

async fn the_store_says_that_it_is_well(bench: &Bench) {
    bench.store().ping().await.expect("it is well");
}
