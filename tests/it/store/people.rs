//! What people and the admin API ask of every store, and what it keeps for them.

use std::time::Duration;

use bytes::Bytes;
use onceward::event::{KeyKind, ScopeKey, Timestamp};
use onceward::idempotency::history::{Attempt, Step, Verb};
use onceward::idempotency::record::{FailureClass, Status, UnknownReason};
use onceward::idempotency::{Draft, Expect, Lease, Record, State, Ttl};
use onceward::store::{Filter, Meta, Role, Store, StoreFault};

use super::{Bench, HOUR, at, claim, done, eventually, key, success};

promises! {
    a_listing_is_newest_first,
    a_listing_is_of_one_tenant_and_what_lives,
    a_listing_keeps_to_its_filter,
    a_listing_says_when_there_is_more,
    a_key_is_found_as_it_reads,
    a_key_is_found_in_every_namespace,
    only_events_are_found,
    what_is_kept_for_people_comes_back,
    what_is_kept_for_people_goes_with_its_state,
    who_made_the_meta_is_told,
    facts_name_the_software,
}

/// Every state that can be listed.
const LISTED: [Status; 5] = [Status::Processing, Status::Succeeded, Status::Failed, Status::Unknown, Status::Mismatch];

fn all() -> Filter {
    Filter { statuses: LISTED.to_vec(), route: None, since: None, limit: 1000 }
}

async fn put(store: &dyn Store, key: &ScopeKey, draft: &Draft) -> Record {
    done(store.swap(key, Expect::Absent, draft).await.expect("an answer"))
}

async fn names(store: &dyn Store, filter: &Filter) -> Vec<String> {
    let listed = store.list("acme", filter).await.expect("a listing");
    listed.entries.into_iter().map(|entry| entry.key.parts.join("|")).collect()
}

fn in_state(state: State) -> Draft {
    Draft { state, ..claim("a", HOUR) }
}

fn unknown() -> State {
    State::Unknown { reason: UnknownReason::Timeout }
}

async fn a_listing_is_newest_first(bench: &Bench) {
    let store = bench.store();
    let failed = State::Failed { class: FailureClass::Terminal, response: None };
    let drafts = [claim("a", HOUR), in_state(unknown()), in_state(failed), success("a", b"x"), claim("a", HOUR)];
    let mut records = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let draft = Draft { fence: claim("a", HOUR).fence, ..draft.clone() };
        records.push(put(&*store, &key(&at.to_string()), &draft).await);
    }
    let listed = store.list("acme", &all()).await.expect("a listing");
    assert!(!listed.more);
    assert!(records.iter().all(|record| record.started_at <= listed.now));
    records.reverse();
    assert_eq!(listed.entries.into_iter().map(|entry| entry.record).collect::<Vec<_>>(), records);
}

async fn a_listing_is_of_one_tenant_and_what_lives(bench: &Bench) {
    let store = bench.store();
    put(&*store, &key("mine"), &claim("a", HOUR)).await;
    put(&*store, &ScopeKey { tenant: "acm".into(), ..key("other") }, &claim("a", HOUR)).await;
    put(&*store, &ScopeKey { scope: "other".into(), ..key("scope") }, &claim("a", HOUR)).await;
    let brief = Draft { ttl: Ttl::Exactly(Duration::from_millis(20)), ..claim("a", HOUR) };
    put(&*store, &key("brief"), &brief).await;
    eventually("it is forgotten", async || (names(&*store, &all()).await == ["scope", "mine"]).then_some(())).await;
}

async fn a_listing_keeps_to_its_filter(bench: &Bench) {
    let store = bench.store();
    let route = |route: &str, state: State| Draft { route: route.into(), ..in_state(state) };
    put(&*store, &key("running"), &route("stripe", State::Processing)).await;
    put(&*store, &key("lost"), &route("stripe", unknown())).await;
    let last = put(&*store, &key("odd"), &route("a\0'b\\", unknown())).await;
    put(&*store, &key("bare"), &route("", unknown())).await;
    put(&*store, &key("second"), &in_state(State::Alias { of: key("lost") })).await;

    let of = |statuses: &[Status]| Filter { statuses: statuses.to_vec(), ..all() };
    assert_eq!(names(&*store, &of(&[Status::Unknown])).await, ["bare", "odd", "lost"]);
    assert_eq!(names(&*store, &of(&[Status::Processing, Status::Failed])).await, ["running"]);
    assert!(names(&*store, &of(&[])).await.is_empty());
    let of = |route: &str| Filter { route: Some(route.into()), ..all() };
    assert_eq!(names(&*store, &of("stripe")).await, ["lost", "running"]);
    assert_eq!(names(&*store, &of("a\0'b\\")).await, ["odd"]);
    assert_eq!(names(&*store, &of("")).await, ["bare"]);
    assert!(names(&*store, &of("strip")).await.is_empty());
    let since = |since| Filter { since: Some(since), ..all() };
    assert_eq!(names(&*store, &since(last.started_at)).await, ["bare", "odd"]);
    let later = Timestamp::from_micros(last.started_at.as_micros() + 1);
    assert_eq!(names(&*store, &since(later)).await, ["bare"]);
}

async fn a_listing_says_when_there_is_more(bench: &Bench) {
    let store = bench.store();
    for at in 0..6 {
        let state = if at % 2 == 0 { State::Processing } else { unknown() };
        put(&*store, &key(&at.to_string()), &in_state(state)).await;
    }
    for (limit, more, expected) in
        [(6, false, "543210"), (7, false, "543210"), (5, true, "54321"), (2, true, "54"), (0, true, "")]
    {
        let listed = store.list("acme", &Filter { limit, ..all() }).await.expect("a listing");
        let names: String = listed.entries.iter().map(|entry| entry.key.parts.join("")).collect();
        assert_eq!((names.as_str(), listed.more), (expected, more), "{limit}");
    }
}

async fn a_key_is_found_as_it_reads(bench: &Bench) {
    let store = bench.store();
    let long = "x".repeat(400);
    let parts: [&[&str]; 12] = [
        &["evt_1"],
        &["a", "b"],
        &["a|b"],
        &["a\\", "b"],
        &["a\\|b"],
        &["", ""],
        &["a", ""],
        &[],
        &["\0"],
        &["ключ \u{10ffff}"],
        &["sha256-00"],
        &[&long],
    ];
    let keys = parts.map(|parts| ScopeKey { parts: parts.iter().map(|&part| part.to_owned()).collect(), ..key("") });
    for key in &keys {
        put(&*store, key, &claim("a", HOUR)).await;
    }
    for key in &keys {
        let found = store.find("acme", "pay", &key.readable_key()).await.expect("an answer");
        assert_eq!(found.len(), 1, "{key:?}");
        assert_eq!(found[0].key, *key);
        assert_eq!(Some(&found[0].record), store.peek(key).await.expect("an answer").current.as_ref());
    }
    for readable in ["evt_2", "evt_", "", "|", "sha256-", "sha256-00", "x'; DROP TABLE idempotency_records; --", "\0"] {
        let found = store.find("acme", "pay", readable).await.expect("an answer");
        assert!(found.is_empty() || found[0].key.readable_key() == readable, "{readable}");
    }
}

async fn a_key_is_found_in_every_namespace(bench: &Bench) {
    let store = bench.store();
    let named = |namespace: &str| ScopeKey { namespace: namespace.into(), ..key("evt_1") };
    let mut keys = ["", "n", "n@m", "z\0\\", "ä"].map(named).to_vec();
    for key in &keys {
        put(&*store, key, &claim("a", HOUR)).await;
        put(&*store, &ScopeKey { parts: vec!["evt_2".into()], ..key.clone() }, &claim("a", HOUR)).await;
    }
    put(&*store, &ScopeKey { tenant: "other".into(), ..key("evt_1") }, &claim("a", HOUR)).await;
    put(&*store, &ScopeKey { scope: "other".into(), ..key("evt_1") }, &claim("a", HOUR)).await;
    let found = store.find("acme", "pay", "evt_1").await.expect("an answer");
    let mut found = found.into_iter().map(|entry| entry.key).collect::<Vec<_>>();
    found.sort();
    keys.sort();
    assert_eq!(found, keys);
}

async fn only_events_are_found(bench: &Bench) {
    let store = bench.store();
    let event = key("evt_1");
    let kind = |kind| ScopeKey { kind, ..key("evt_1") };
    let body = kind(KeyKind::Body);
    put(&*store, &kind(KeyKind::Alias), &in_state(State::Alias { of: event.clone() })).await;
    put(&*store, &event.quarantine(), &claim("a", HOUR)).await;
    put(&*store, &body, &claim("a", HOUR)).await;
    let brief = Draft { ttl: Ttl::Exactly(Duration::from_micros(1)), ..claim("a", HOUR) };
    put(&*store, &event, &brief).await;
    eventually("it is forgotten", async || {
        store.find("acme", "pay", "evt_1").await.expect("an answer").is_empty().then_some(())
    })
    .await;
    let found = store.find("acme", "pay", &body.readable_key()).await.expect("an answer");
    assert_eq!(found.into_iter().map(|entry| entry.key).collect::<Vec<_>>(), [body]);
    for other in [kind(KeyKind::Alias), event.quarantine()] {
        assert!(store.find("acme", "pay", &other.readable_key()).await.expect("an answer").is_empty());
    }
}

/// A draft with everything that is kept for people.
fn rich(state: State) -> Draft {
    let attempt = Attempt {
        attempt: 3,
        fence: 1_780_000_000_000_001,
        event: "own\0er".into(),
        started_at: Timestamp::from_micros(1),
        finished_at: Some(Timestamp::from_micros(2)),
        status: Status::Failed,
        class: Some(FailureClass::Transient),
        reason: None,
        upstream_status: Some(503),
        error: Some("\0 \\0 went\nwrong \"".into()),
    };
    let operator = Step::Operator { verb: Verb::Release, by: "ops \u{1f600}".into(), at: Timestamp::from_micros(3) };
    let octets = (0..=255).cycle().take(70_000).collect::<Vec<u8>>();
    Draft {
        route: "pay\0\\0".into(),
        history: vec![Step::Attempt(attempt), operator],
        request: Some(Bytes::from(octets)),
        ..in_state(state)
    }
}

async fn what_is_kept_for_people_comes_back(bench: &Bench) {
    let store = bench.store();
    let odd = ScopeKey { parts: vec!["a\0".into(), "|\\".into()], namespace: "n\0".into(), ..key("") };
    let states = [
        State::Alias { of: odd },
        State::Mismatch {
            fields: vec!["$method".into(), "/a\0\"".into()],
            count: u64::MAX,
            first_at: Timestamp::from_micros(7),
        },
        State::Mismatch { fields: Vec::new(), count: 0, first_at: Timestamp::default() },
        unknown(),
    ];
    for (at, state) in states.into_iter().enumerate() {
        let (name, draft) = (key(&at.to_string()), rich(state));
        let record = put(&*store, &name, &draft).await;
        let kept = |record: &Record| {
            (record.state.clone(), record.route.clone(), record.history.clone(), record.request.clone())
        };
        assert_eq!(kept(&record), (draft.state, draft.route, draft.history, draft.request));
        assert_eq!(store.peek(&name).await.expect("an answer").current, Some(record.clone()));
        if record.state.status() != Status::Alias {
            let found = store.find("acme", "pay", &name.readable_key()).await.expect("an answer");
            assert_eq!(found[0].record, record);
        }
    }
}

/// Nothing is left of what the next write does not have.
async fn what_is_kept_for_people_goes_with_its_state(bench: &Bench) {
    let store = bench.store();
    let mismatch = State::Mismatch { fields: vec!["/a".into()], count: 2, first_at: Timestamp::from_micros(7) };
    let drafts = [
        rich(unknown()),
        claim("a", HOUR),
        rich(mismatch),
        success("a", b"x"),
        rich(State::Alias { of: key("e") }),
        Draft { request: Some(Bytes::new()), route: String::new(), ..claim("a", HOUR) },
    ];
    let mut standing = put(&*store, &key("k"), &claim("a", HOUR)).await;
    for draft in drafts.iter().chain(drafts.iter().rev()) {
        let record = done(store.swap(&key("k"), at(&standing, Lease::Any), draft).await.expect("an answer"));
        let seen = store.peek(&key("k")).await.expect("an answer").current.expect("the record");
        assert_eq!(seen, record);
        assert_eq!((&seen.state, &seen.route), (&draft.state, &draft.route));
        assert_eq!((&seen.history, &seen.request), (&draft.history, &draft.request));
        standing = seen;
    }
}

async fn who_made_the_meta_is_told(bench: &Bench) {
    let offer = |seed: u8| Meta { epoch: format!("epoch-{seed}"), digest_key: [seed; 32] };
    let answers = futures::future::join_all((1..=20).map(|seed| {
        let store = bench.store();
        async move { (seed, store.meta(offer(seed)).await.expect("an answer")) }
    }))
    .await;
    let makers = answers.iter().filter(|(_, found)| found.made).collect::<Vec<_>>();
    assert_eq!(makers.len(), usize::from(!bench.has_meta));
    assert!(makers.iter().all(|(seed, found)| found.meta == offer(*seed)), "who made it made it of the own offer");
    assert!(!bench.store().meta(offer(99)).await.expect("an answer").made);
}

async fn facts_name_the_software(bench: &Bench) {
    let store = bench.store();
    let facts = store.facts().await.expect("an answer");
    assert!(["memory", "sqlite", "redis", "postgresql"].contains(&facts.software), "{facts:?}");
    assert_eq!(facts.version.is_empty(), facts.software == "memory", "{facts:?}");
    assert!(facts.version.chars().all(|letter| letter != '\n'), "{facts:?}");
    assert_eq!(facts.role, Role::Primary);
    let again = store.facts().await.map_err(|error| error.kind);
    assert_eq!(again, Ok::<_, StoreFault>(facts), "the same server says the same");
}
