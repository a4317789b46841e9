use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::event::{KeyKind, ScopeKey};
use crate::idempotency::history::{Attempt, Step};
use crate::idempotency::{Fence, Ttl};

fn row(draft: &Draft, record: &Record) -> Row {
    let mut row = Row::default();
    for (name, cell) in content(draft).into_iter().chain(stamps(record)) {
        row.insert(name.as_bytes(), cell.as_bytes().to_vec());
    }
    row
}

fn a_response() -> impl Strategy<Value = StoredResponse> {
    let octets = || vec(any::<u8>(), 0..30).prop_map(Bytes::from);
    let body = prop_oneof![
        octets().prop_map(StoredBody::Full),
        any::<String>().prop_map(StoredBody::Reference),
        Just(StoredBody::Omitted)
    ];
    (any::<u16>(), vec((any::<String>(), octets()), 0..5), body).prop_map(|(status, headers, body)| StoredResponse {
        status,
        headers,
        body,
    })
}

fn a_state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Processing),
        Just(State::Unknown { reason: UnknownReason::LeaseOver }),
        a_response().prop_map(|response| State::Succeeded { response }),
        option::of(a_response()).prop_map(|response| State::Failed { class: FailureClass::Terminal, response }),
        a_key().prop_map(|of| State::Alias { of }),
        (vec(any::<String>(), 0..3), any::<u64>(), a_time()).prop_map(|(fields, count, first_at)| State::Mismatch {
            fields,
            count,
            first_at
        }),
    ]
}

fn a_time() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_micros)
}

fn a_key() -> impl Strategy<Value = ScopeKey> {
    let kind = prop_oneof![Just(KeyKind::Key), Just(KeyKind::Alias), Just(KeyKind::Body), Just(KeyKind::Mismatch)];
    let words = (any::<String>(), any::<String>(), any::<String>(), vec(any::<String>(), 0..3));
    (words, kind).prop_map(|((tenant, scope, namespace, parts), kind)| ScopeKey {
        tenant,
        scope,
        namespace,
        kind,
        parts,
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let operator = (any::<String>(), a_time()).prop_map(|(by, at)| Step::Operator {
        verb: crate::idempotency::history::Verb::Succeed,
        by,
        at,
    });
    let numbers = (any::<u32>(), any::<u64>(), a_time(), option::of(a_time()), option::of(any::<u16>()));
    let words = (any::<String>(), option::of(any::<String>()), any::<bool>());
    let attempt = (numbers, words).prop_map(
        |((attempt, fence, started_at, finished_at, upstream_status), (event, error, known))| {
            Step::Attempt(Attempt {
                attempt,
                fence,
                event,
                started_at,
                finished_at,
                status: if known { Status::Failed } else { Status::Unknown },
                class: known.then_some(FailureClass::Transient),
                reason: (!known).then_some(UnknownReason::Broken),
                upstream_status,
                error,
            })
        },
    );
    prop_oneof![operator, attempt]
}

fn a_draft() -> impl Strategy<Value = Draft> {
    let words = (any::<String>(), any::<String>(), any::<String>(), any::<String>(), option::of(any::<String>()));
    let digests = (any::<[u8; 32]>(), vec((any::<String>(), any::<FieldDigest>()), 0..5));
    let numbers = (any::<u64>(), any::<u32>(), any::<bool>(), any::<bool>());
    let more = (any::<String>(), vec(a_step(), 0..3), option::of(vec(any::<u8>(), 0..30).prop_map(Bytes::from)));
    (a_state(), words, digests, numbers, more).prop_map(
        |(
            state,
            (key_id, owner, name, version, error),
            (digest, fields),
            (floor, attempt, released, ambiguous),
            (route, history, request),
        )| {
            Draft {
                state,
                fingerprint: Fingerprint { key_id, digest, fields },
                owner: Owner(owner),
                fence: Fence::Next { floor },
                attempt,
                lease: Some(Duration::from_secs(30)),
                ttl: Ttl::Exactly(Duration::MAX),
                released,
                ambiguous,
                error,
                plugin: PluginVersion { name, version },
                route,
                history,
                request,
            }
        },
    )
}

proptest! {
    /// What was written is what is read, whatever it holds.
    #[test]
    fn a_record_comes_back_as_it_was(draft in a_draft(), now in any::<u64>()) {
        let record = draft.stamp(Timestamp::from_micros(now), None);
        prop_assert_eq!(row(&draft, &record).decode().expect("readable"), record);
    }

    /// A column that is lost or scrambled is a fault, or it was one of those that may be absent; another status never fits.
    #[test]
    fn a_damaged_record_is_told(draft in a_draft(), now in any::<u64>(), garbage in "[^0-9a-z]{1,9}") {
        let record = draft.stamp(Timestamp::from_micros(now), None);
        for name in ["status", "fence", "started_at", "lease_until", "expires_at", "fingerprint", "field_digests", "attempt", "released"] {
            for damage in [None, Some(garbage.clone().into_bytes()), Some(vec![0xff])] {
                let mut row = row(&draft, &record);
                row.0.remove(name);
                if let Some(value) = damage {
                    row.insert(name.as_bytes(), value);
                }
                prop_assert_eq!(row.decode().expect_err(name).kind, StoreFault::Corrupt);
            }
        }
        for status in ["processing", "succeeded", "failed", "unknown"] {
            if status != draft.state.status().as_str() {
                let mut row = row(&draft, &record);
                row.insert(b"status", status.into());
                prop_assert_eq!(row.decode().expect_err(status).kind, StoreFault::Corrupt);
            }
        }
    }
}

/// The form that people and other programs read.
#[test]
fn headers_are_readable_and_octets_survive() {
    let pairs = [("a", &b"x"[..]), ("a", b"\xff\0"), ("b", b"")].map(|(name, value)| (name.to_owned(), value.into()));
    assert_eq!(
        headers(&pairs.map(|(name, value): (_, Vec<u8>)| (name, value.into()))),
        r#"[["a","x"],["a",{"hex":"ff00"}],["b",""]]"#
    );
}

/// A column of a later version is no fault: both versions run during an upgrade.
#[test]
fn an_unknown_column_is_left_out() {
    let mut row = Row::default();
    row.insert(b"invented_later", vec![1]);
    assert!(row.0.is_empty());
}
