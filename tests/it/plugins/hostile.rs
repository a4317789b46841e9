//! Guests that misbehave: each is stopped within its limits with the right kind of failure, and nothing is left of it. The next
//! request gets a fresh instance, and another plugin never notices.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use onceward::plugin::{
    Budget, Engine, Failure, FailureKind, Grant, Inspection, LoadError, PluginFault, Settings, Stage,
};

use super::guest::{GuestCode, Material, Told};
use super::support::{self, ENGINE, assert_well, failure, grant, harmless, inspect, load, trigger};

/// The guest fails so, without harm to the next call or to another plugin.
async fn check(what: &str, code: GuestCode, kind: FailureKind, stage: Stage) -> Failure {
    let plugin = load(code);
    let neighbour = load(GuestCode::new());
    for _ in 0..3 {
        let failure = failure(&plugin).await;
        assert_eq!((failure.kind, failure.stage), (kind, stage), "{what}: {failure}");
        assert!(!failure.detail.contains(char::is_control), "{what}: {:?}", failure.detail);
        assert_well(&plugin).await;
        assert_well(&neighbour).await;
    }
    failure(&plugin).await
}

const LOOP: &str = "(loop $again (br $again)) (unreachable)";

#[tokio::test]
async fn loops_run_out_of_fuel() {
    check("loop in verify", GuestCode::new().verify(LOOP), FailureKind::OutOfFuel, Stage::Verify).await;
    check("loop in extract", GuestCode::new().extract(LOOP), FailureKind::OutOfFuel, Stage::Extract).await;
}

/// A start function runs within the limits too, already when the plugin is loaded.
#[tokio::test]
async fn a_loop_in_the_start_function_is_stopped() {
    let refused = ENGINE.load("guest", &GuestCode::new().start("(loop $again (br $again))").build());
    let Err(LoadError::Describe(failure)) = refused else { panic!("loaded") };
    assert_eq!((failure.kind, failure.stage), (FailureKind::OutOfFuel, Stage::Instantiate));
}

/// Where there is fuel left, time ends the guest, and others run meanwhile.
#[tokio::test]
async fn a_long_run_times_out_and_lets_others_run() {
    let plugin = load(GuestCode::new().verify(LOOP));
    let budget = Budget { fuel: u64::MAX / 2, wall: Duration::from_millis(50), ..Budget::default() };
    let slow = Arc::new(Grant { budget, ..grant() });
    let neighbour = load(GuestCode::new());

    let served = Cell::new(0);
    let others = async {
        for _ in 0..5 {
            assert_well(&neighbour).await;
            served.set(served.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let request = trigger();
    let call = async {
        let inspected = plugin.inspect(&slow, &request).await;
        (inspected, served.get())
    };
    let ((inspected, served_meanwhile), ()) = tokio::join!(call, others);
    assert_eq!(inspected.result.unwrap_err().kind, FailureKind::Timeout);
    assert_eq!(served_meanwhile, 5);
    let wall = inspected.usage.wall_us;
    assert!(wall.used >= wall.limit && wall.limit == 50_000, "{wall:?}");
}

/// The budget of a tenant cannot raise the ceiling.
#[tokio::test]
async fn no_budget_exceeds_the_ceiling() {
    let plugin = load(GuestCode::new().verify(LOOP));
    let budget = Budget { fuel: u64::MAX / 2, wall: support::MINUTE, ..Budget::default() };
    let inspected = plugin.inspect(&Arc::new(Grant { budget, ..grant() }), &trigger()).await;
    assert_eq!(inspected.result.unwrap_err().kind, FailureKind::Timeout);
    assert_eq!(inspected.usage.wall_us.limit, 100_000);
}

#[tokio::test]
async fn traps_are_the_guests() {
    let trap = FailureKind::GuestTrap;
    check("unreachable", GuestCode::new().verify("(unreachable)"), trap, Stage::Verify).await;
    check("bad access", GuestCode::new().extract("(i32.load (i32.const -8))"), trap, Stage::Extract).await;
    check("division", GuestCode::new().verify("(i32.div_u (i32.const 1) (i32.const 0))"), trap, Stage::Verify).await;
    let failure =
        check("recursion", GuestCode::new().verify("(call $recurse (i32.const 0))"), trap, Stage::Verify).await;
    assert!(failure.detail.contains("call stack exhausted"), "{failure}");
}

#[tokio::test]
async fn growth_beyond_the_limit_is_stopped() {
    let bomb = "(loop $more (drop (memory.grow (i32.const 100))) (br $more)) (unreachable)";
    check("memory", GuestCode::new().verify(bomb), FailureKind::MemoryLimit, Stage::Verify).await;
    let table = "(drop (table.grow $table (ref.null func) (i32.const 30000))) (unreachable)";
    check("table", GuestCode::new().verify(table), FailureKind::MemoryLimit, Stage::Verify).await;

    let plugin = load(GuestCode::new().first("(drop (memory.grow (i32.const 64)))"));
    let budget = Budget { memory_bytes: 1 << 20, ..support::patient() };
    let inspected = plugin.inspect(&Arc::new(Grant { budget, ..grant() }), &trigger()).await;
    assert_eq!(inspected.result.unwrap_err().kind, FailureKind::MemoryLimit);
    assert!(inspected.usage.memory_bytes.used <= 1 << 20);
}

#[tokio::test]
async fn outputs_beyond_the_limits_are_refused() {
    let (contract, extract) = (FailureKind::Contract, Stage::Extract);
    let body = vec![b'x'; 65 << 10];
    check("65 KiB answer", GuestCode::new().respond(200, &[], &body), FailureKind::OutputLimit, extract).await;
    check(
        "a long list of nothing",
        GuestCode::new().first("(drop (memory.grow (i32.const 8)))").process_raw(393_216, 4000),
        FailureKind::OutputLimit,
        extract,
    )
    .await;
    let huge = GuestCode::new().first("(drop (memory.grow (i32.const 600)))").process_raw(393_216, 700_000);
    check("36 MB of events", huge, FailureKind::OutputLimit, extract).await;

    let many: Vec<Told> = (0..1001).map(|_| Told::key(&["k"])).collect();
    check("1,001 events", GuestCode::new().process(&many), contract, extract).await;
    let parts = ["k"; 17];
    check("17 key parts", GuestCode::new().process(&[Told::key(&parts)]), contract, extract).await;
    let long: &'static str = "k".repeat(513).leak();
    check("513 B of key", GuestCode::new().process(&[Told::key(&[long])]), contract, extract).await;
    let alias = Told { aliases: vec![vec![long]], ..Told::key(&["k"]) };
    check("513 B of alias", GuestCode::new().process(&[alias]), contract, extract).await;
}

fn material(names: &[&str]) -> GuestCode {
    let fields = names.iter().map(|name| ((*name).to_owned(), Material::Text("v".into()))).collect();
    GuestCode::new().process(&[Told { material: fields, ..Told::key(&["k"]) }])
}

#[tokio::test]
async fn material_fields_keep_their_promises() {
    let (contract, extract) = (FailureKind::Contract, Stage::Extract);
    check("two of one name", material(&["/a", "/a"]), contract, extract).await;
    check("the gateway's own name", material(&["$body"]), contract, extract).await;
    check("no name", material(&[""]), contract, extract).await;
    let names: Vec<String> = (0..65).map(|number| format!("/{number}")).collect();
    check("65 fields", material(&names.iter().map(String::as_str).collect::<Vec<_>>()), contract, extract).await;
    let number = Told { material: vec![("/n".into(), Material::Number("1e"))], ..Told::key(&["k"]) };
    check("no number", GuestCode::new().process(&[number]), contract, extract).await;
}

/// Nothing that a plugin says reaches a header line unchecked.
#[tokio::test]
async fn answers_keep_their_promises() {
    let (contract, extract) = (FailureKind::Contract, Stage::Extract);
    let with = |name: &str, value: &[u8]| GuestCode::new().respond(200, &[(name, value)], b"");
    for (name, value) in
        [("x-a", "b\r\nset-cookie: c"), ("x-a", "b\nc"), ("x-a", "\0"), ("x a", "b"), ("x-a\r\n", "b"), ("", "b")]
    {
        check("header", with(name, value.as_bytes()), contract, extract).await;
    }
    for name in ["Content-Length", "transfer-encoding", "Connection", "idempotency-replayed", "onceward-event"] {
        check(name, with(name, b"1"), contract, extract).await;
    }
    for status in [0, 100, 199, 600, 65535] {
        check("status", GuestCode::new().respond(status, &[], b""), contract, extract).await;
    }
    for status in [200, 302, 399, 500] {
        check("rejection", GuestCode::new().reject(status, "c", "d"), contract, extract).await;
        check("refusal", GuestCode::new().invalid("d", Some(status)), contract, Stage::Verify).await;
    }
}

/// Pointers out of bounds, text that is not UTF-8 and cases that do not exist are read by nobody.
#[tokio::test]
async fn unreadable_results_are_refused() {
    let (contract, extract) = (FailureKind::Contract, Stage::Extract);
    check("out of bounds", GuestCode::new().process_raw(0xffff_0000, 2), contract, extract).await;
    check("length", GuestCode::new().process_raw(4096, u32::MAX), contract, extract).await;
    check("pointer", GuestCode::new().extract("(i32.const -4)"), contract, extract).await;
    check("not UTF-8", GuestCode::new().pass(b"\xff\xfe"), contract, extract).await;
    let mut code = GuestCode::new();
    let unknown = code.memory().put(&[0, 0, 0, 0, 9, 0, 0, 0]).at;
    check("unknown case", code.extract(&format!("(i32.const {unknown})")), contract, extract).await;
}

#[tokio::test]
async fn a_log_flood_is_cut_and_counted() {
    let mut code = GuestCode::new();
    let line = code.memory().put(b"\x1b[2Jforged\r\nline");
    let call = format!("(call $log (i32.const 3) (i32.const {}) (i32.const {}))", line.at, line.len);
    let flood = format!(
        "(local $n i32) (loop $more {call} (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if $more (i32.lt_u (local.get $n) (i32.const 5000))))"
    );
    // A local is declared at a function's head, so the counter is a global here.
    let flood = flood
        .replace("(local $n i32) ", "")
        .replace("local.set $n", "global.set $calls")
        .replace("local.get $n", "global.get $calls");
    let plugin = load(code.first(&flood));

    let inspected = inspect(&plugin, &trigger()).await;
    assert!(inspected.result.is_ok(), "{:?}", inspected.result);
    let bytes: usize = inspected.log.iter().map(|line| line.text.len()).sum();
    assert!(bytes > 4096 && bytes <= 8192, "{bytes}");
    assert_eq!(inspected.usage.log_dropped as usize + inspected.log.len(), 5000);
    assert!(inspected.log.iter().all(|line| line.text == r"\u{1b}[2Jforged\r\nline"), "{:?}", inspected.log.first());
}

/// What a plugin says of itself keeps its meaning: a malformed request is the sender's fault, a missing certificate asks for a retry.
#[tokio::test]
async fn a_plugins_own_errors_are_told_apart() {
    let faults = [
        PluginFault::Malformed,
        PluginFault::Misconfigured,
        PluginFault::Unsupported,
        PluginFault::Unavailable,
        PluginFault::Internal,
    ];
    for (case, fault) in (0_u8..).zip(faults) {
        let code = GuestCode::new().verify_error(case, "why\r\nforged");
        let failure = check(fault.as_str(), code, FailureKind::PluginError(fault), Stage::Verify).await;
        assert_eq!((failure.kind.as_str(), failure.detail.as_str()), ("plugin-error", r"why\r\nforged"));
    }
}

/// Each call has a fresh instance: a counter in the guest never passes one.
#[tokio::test]
async fn no_state_survives_a_call() {
    let count = "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) \
                 (if (i32.ne (global.get $calls) (i32.const 1)) (then unreachable)) \
                 (if (i32.load (i32.const 32)) (then unreachable)) (i32.store (i32.const 32) (i32.const 7))";
    let plugin = load(GuestCode::new().first(count));
    for _ in 0..200 {
        assert!(inspect(&plugin, &trigger()).await.result.is_ok());
    }
}

/// A failure after `verified` says so: a route may forward such a delivery, but none that was never verified.
#[tokio::test]
async fn a_failure_after_verified_is_known_as_one() {
    let late = inspect(&load(GuestCode::new().extract("(unreachable)")), &trigger()).await;
    assert!(late.verified && late.result.is_err());
    let early = inspect(&load(GuestCode::new().verify("(unreachable)")), &trigger()).await;
    assert!(!early.verified && early.result.is_err());
    let unsigned = load(GuestCode::new().unsigned().extract("(unreachable)"));
    let allowed = Arc::new(Grant { allow_unsigned: true, ..grant() });
    let inspected = unsigned.inspect(&allowed, &trigger()).await;
    assert!(!inspected.verified && inspected.result.is_err());
}

#[tokio::test]
async fn verdicts_arrive_as_they_were_given() {
    let unsigned = load(GuestCode::new().unsigned());
    assert_eq!(inspect(&unsigned, &trigger()).await.result.unwrap(), Inspection::UnsignedRefused);
    let allowed = Arc::new(Grant { allow_unsigned: true, ..grant() });
    assert!(matches!(unsigned.inspect(&allowed, &trigger()).await.result, Ok(Inspection::Events(_))));

    let stale = load(GuestCode::new().stale(-301));
    assert_eq!(inspect(&stale, &trigger()).await.result.unwrap(), Inspection::Stale(-301));

    let invalid = load(GuestCode::new().invalid("no\nfit", Some(498)));
    match inspect(&invalid, &trigger()).await.result.unwrap() {
        Inspection::Invalid(refusal) => {
            assert_eq!((refusal.status.unwrap().as_u16(), refusal.detail.as_str()), (498, r"no\nfit"));
        }
        other => panic!("{other:?}"),
    }
    let answer = load(GuestCode::new().respond(202, &[("X-A", b"1"), ("x-a", b"\xe9")], b"ok"));
    match inspect(&answer, &trigger()).await.result.unwrap() {
        Inspection::Respond(reply) => {
            assert_eq!((reply.status.as_u16(), &reply.body[..]), (202, &b"ok"[..]));
            assert_eq!(
                reply.headers.get_all("x-a").iter().map(|value| value.as_bytes()).collect::<Vec<_>>(),
                [&b"1"[..], b"\xe9"]
            );
        }
        other => panic!("{other:?}"),
    }
    let reject = load(GuestCode::new().reject(422, "bad-currency", "no"));
    assert!(
        matches!(inspect(&reject, &trigger()).await.result, Ok(Inspection::Reject { status, .. }) if status == 422)
    );
    let pass = load(GuestCode::new().pass(b"a ping"));
    assert_eq!(inspect(&pass, &trigger()).await.result.unwrap(), Inspection::Pass("a ping".into()));
}

/// Blanks alone are no key: they would be one key for all events.
#[tokio::test]
async fn a_blank_key_is_no_key() {
    let blank = Told { aliases: vec![vec!["", " "], vec!["a"]], ..Told::key(&["", " \t"]) };
    let plugin = load(GuestCode::new().process(&[blank]));
    let events = support::events(&plugin, &trigger()).await;
    assert!(events[0].key.is_empty());
    assert_eq!(events[0].aliases, [["a"]]);
}

/// An engine of its own, for tests that fill one.
fn small_engine() -> Engine {
    Engine::new(Settings { concurrency: 4, ..Settings::default() }).unwrap()
}

/// A client that hangs up ends its guest: the slot is free again, whatever the guest was doing.
#[tokio::test]
async fn a_dropped_call_frees_its_slot() {
    let plugin = small_engine().load("guest", &GuestCode::new().verify(LOOP).build()).unwrap();
    let budget = Budget { fuel: u64::MAX / 2, wall: Budget::WALL_MAX, ..Budget::default() };
    let slow = Arc::new(Grant { budget, ..grant() });
    let request = trigger();
    // More than the engine has slots.
    for _ in 0..20 {
        let call = plugin.inspect(&slow, &request);
        let gone = async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        };
        tokio::select! { biased; inspected = call => panic!("ended: {inspected:?}"), () = gone => {} }
    }
    assert_well(&plugin).await;
}

/// More calls than slots: some are told that the host is busy, none waits or breaks, and all is well afterwards.
#[tokio::test]
async fn a_full_host_says_so() {
    let plugin = small_engine().load("guest", &GuestCode::new().verify(LOOP).build()).unwrap();
    let budget = Budget { fuel: u64::MAX / 2, wall: Duration::from_millis(20), ..Budget::default() };
    let slow = Arc::new(Grant { budget, ..grant() });
    let request = trigger();
    let calls = (0..10).map(|_| plugin.inspect(&slow, &request));
    let kinds: Vec<_> =
        futures::future::join_all(calls).await.into_iter().map(|call| call.result.unwrap_err().kind).collect();
    assert!(kinds.contains(&FailureKind::HostBusy) && kinds.contains(&FailureKind::Timeout), "{kinds:?}");
    assert!(kinds.iter().all(|kind| matches!(kind, FailureKind::HostBusy | FailureKind::Timeout)), "{kinds:?}");
    assert_well(&plugin).await;
    inspect(&plugin, &harmless()).await.result.unwrap();
}
