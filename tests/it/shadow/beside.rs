//! What a candidate beside an active version is found to do differently.

use std::time::{Duration, Instant};

use onceward::gateway::shadow::{Counts, Example, Shadows};

use super::rig::{Beside, OTHER, TRIGGER, examples};
use crate::plugins::guest::{GuestCode, Material, Told};
use crate::plugins::support::load;

fn keyed(key: &'static str) -> GuestCode {
    GuestCode::new().process(&[Told::key(&[key])])
}

fn told(key: &[&'static str], aliases: &[&[&'static str]], material: &[(&str, &str)]) -> GuestCode {
    GuestCode::new().process(&[Told {
        key: key.to_vec(),
        aliases: aliases.iter().map(|alias| alias.to_vec()).collect(),
        material: material.iter().map(|(name, text)| ((*name).into(), Material::Text((*text).into()))).collect(),
    }])
}

/// Both versions get the trigger and another delivery, each twice.
async fn compared(active: GuestCode, candidate: GuestCode) -> Counts {
    let beside = Beside::new(&load(active), &load(candidate));
    for (at, body) in [TRIGGER, OTHER, TRIGGER, OTHER].into_iter().enumerate() {
        beside.deliver(body, &format!("event-{at}")).await;
    }
    beside.report(4).await.counts
}

fn example(kind: &str, event: &str, active: &str, candidate: &str) -> Example {
    Example {
        kind: kind.into(),
        route: "pay".into(),
        event: event.into(),
        active: active.into(),
        candidate: candidate.into(),
        fields: Vec::new(),
    }
}

/// Only what is asked for was counted.
#[track_caller]
fn only(counts: &Counts, set: impl FnOnce(&mut Counts)) {
    let mut expected = Counts { compared: 4, ..Counts::default() };
    set(&mut expected);
    let mut found = counts.clone();
    for text in [&mut found.active, &mut found.candidate, &mut found.active_namespace, &mut found.candidate_namespace] {
        text.clear();
    }
    found.examples.clear();
    assert_eq!(found, expected, "{:?}", counts.examples);
}

#[tokio::test]
async fn an_equal_version_has_nothing_to_report() {
    let material = [("/amount", "5")];
    let code = || told(&["a"], &[&["x"], &["y"]], &material).called("2.0.0", "");
    let counts = compared(told(&["a"], &[&["y"], &["x"]], &material), code()).await;
    only(&counts, |counts| counts.equal = 4);
    assert!(counts.examples.is_empty() && !counts.blocks());
}

#[tokio::test]
async fn another_key() {
    let counts = compared(keyed("a"), keyed("b")).await;
    only(&counts, |counts| (counts.equal, counts.keys) = (2, 2));
    assert!(counts.blocks());
    assert_eq!(
        counts.examples,
        [example("keys", "event-0", "t:pay:a", "t:pay:b"), example("keys", "event-2", "t:pay:a", "t:pay:b")]
    );
    // What says that its keys are others may have others.
    let counts = compared(keyed("a"), keyed("b").called("2.0.0", "v2")).await;
    only(&counts, |counts| (counts.equal, counts.keys) = (2, 2));
    assert!(!counts.blocks());
    assert_eq!(counts.examples[0].candidate, "t:pay@v2:b");
    let counts = compared(keyed("a"), keyed("a").called("2.0.0", "v2")).await;
    only(&counts, |counts| counts.equal = 4);
}

#[tokio::test]
async fn a_collision() {
    let counts = compared(keyed("a"), keyed("k")).await;
    only(&counts, |counts| (counts.equal, counts.keys, counts.collisions) = (2, 2, 1));
    assert!(counts.examples.contains(&example("collision", "event-1", "t:pay:k", "t:pay:k")), "{counts:?}");
}

#[tokio::test]
async fn a_split() {
    let counts = compared(keyed("k"), keyed("a")).await;
    // Each change back is one more.
    only(&counts, |counts| (counts.equal, counts.keys, counts.splits) = (2, 2, 3));
    assert!(counts.examples.contains(&example("split", "event-1", "t:pay:k", "t:pay:k")), "{counts:?}");
}

#[tokio::test]
async fn aliases_and_material() {
    let counts = compared(told(&["a"], &[&["x"]], &[]), told(&["a"], &[&["x"], &["y", "z"]], &[])).await;
    only(&counts, |counts| (counts.equal, counts.aliases) = (2, 2));
    assert_eq!(
        counts.examples[0].candidate.split(", ").collect::<std::collections::BTreeSet<_>>(),
        ["x", "y|z"].into()
    );
    assert!(!counts.blocks());
    let one = told(&["a"], &[], &[("/amount", "4242"), ("/currency", "EUR"), ("/old", "1")]);
    let other = told(&["a"], &[], &[("/amount", "4243"), ("/currency", "EUR"), ("/new", "1")]);
    let counts = compared(one, other).await;
    only(&counts, |counts| (counts.equal, counts.material) = (2, 2));
    assert_eq!(counts.examples[0].fields, ["/amount", "/new", "/old"]);
    assert!(!format!("{:?}", counts.examples).contains("424"), "a value is shown: {counts:?}");
}

#[tokio::test]
async fn verdicts() {
    let rows: [(GuestCode, &str, u64); 6] = [
        (GuestCode::new().reject(422, "no", ""), "reject 422", 0),
        (GuestCode::new().respond(202, &[], b""), "respond 202", 0),
        (GuestCode::new().invalid("no", None), "unverified", 0),
        (GuestCode::new().stale(60), "stale", 0),
        // Both forward a redelivery again.
        (GuestCode::new().pass(b"why"), "pass", 2),
        (GuestCode::new().process(&[]), "no-key", 2),
    ];
    for (candidate, verdict, keys) in rows {
        let counts = compared(keyed("a"), candidate).await;
        only(&counts, |counts| (counts.equal, counts.verdicts, counts.keys) = (2, 2, keys));
        assert!(counts.examples.contains(&example("verdict", "event-0", "events", verdict)), "{counts:?}");
        assert_eq!(counts.blocks(), keys > 0, "{verdict}");
    }
}

#[tokio::test]
async fn traps_by_kind_and_what_both_use() {
    let counts = compared(keyed("a"), GuestCode::new().extract("unreachable")).await;
    only(&counts, |counts| {
        counts.equal = 2;
        counts.failures.insert("guest-trap".into(), 2);
    });
    assert!(counts.examples.contains(&example("failed", "event-0", "events", "failed guest-trap")), "{counts:?}");
    // One that works where the active version does not.
    let counts = compared(GuestCode::new().extract("unreachable"), keyed("a")).await;
    only(&counts, |counts| (counts.equal, counts.verdicts) = (2, 2));
    let work = "(local $i i32) (loop $more (local.set $i (i32.add (local.get $i) (i32.const 1))) \
                (br_if $more (i32.lt_u (local.get $i) (i32.const 100000))))";
    let busy = GuestCode::new().start(work);
    let beside = Beside::new(&load(GuestCode::new()), &load(busy));
    for _ in 0..4 {
        beside.deliver(OTHER, "event").await;
    }
    let summary = beside.report(4).await.summary();
    assert!(summary.candidate_fuel.median > summary.active_fuel.p99 + 100_000, "{summary:?}");
    assert!(summary.candidate_us.median > 0, "{summary:?}");
}

/// Of each kind the first few, whatever comes.
#[tokio::test]
async fn examples_are_few() {
    let beside = Beside::new(&load(keyed("a")), &load(keyed("b")));
    for at in 0..40 {
        beside.deliver(TRIGGER, &format!("event-{at}")).await;
        beside.report(at + 1).await;
    }
    let report = beside.report(40).await;
    assert_eq!(examples(&report).into_iter().collect::<Vec<_>>(), [("keys", 5)]);
}

/// A candidate that loops to its limit holds nobody up: what comes meanwhile is skipped, and counted. Another tenant's candidate
/// still gets its turn.
#[tokio::test]
async fn a_spinning_candidate_is_skipped_and_holds_nobody_up() {
    let shadows = Shadows::start().unwrap();
    let spinning = load(GuestCode::new().extract("(loop $again (br $again)) (i32.const 0)"));
    let plain = load(keyed("a"));
    let (slow, quick) = (Beside::on(&shadows, &plain, &spinning), Beside::on(&shadows, &plain, &plain));
    let start = Instant::now();
    for _ in 0..200 {
        slow.deliver(TRIGGER, "event").await;
    }
    let taken = start.elapsed();
    quick.deliver(TRIGGER, "event").await;
    let report = slow.report(200).await;
    assert!(report.counts.skipped > 100, "{report:?}");
    let failed: u64 = report.counts.failures.values().sum();
    assert_eq!(failed, report.counts.compared, "{report:?}");
    assert_eq!(quick.report(1).await.counts.equal, 1);
    // 200 loops to the limit would take seconds.
    assert!(taken < Duration::from_secs(1), "{taken:?}");
}
