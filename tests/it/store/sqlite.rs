//! What happens to a file and its process: reopened, locked, killed, full, torn.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onceward::idempotency::{Draft, Expect, Lease, Record, Ttl};
use onceward::store::{Meta, OpenError, Sqlite, Store, StoreFault};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;

use super::{HOUR, TIMEOUT, at, claim, done, eventually, heartbeat, key, refused, success};

/// Tells a test that it runs as another test's child process, and where its file is.
const CHILD: &str = "ONCEWARD_TEST_CHILD_DATABASE";

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("records.db");
    (directory, path)
}

/// A process that another test is just starting may hold a copy of the lock until it runs its program.
async fn open(path: &Path) -> Sqlite {
    eventually("the file opens", async || match Sqlite::open(path, TIMEOUT).await {
        Err(OpenError::InUse { .. }) => None,
        opened => Some(opened.expect("the file opens")),
    })
    .await
}

async fn claimed(store: &Sqlite, name: &str) -> Record {
    done(store.swap(&key(name), Expect::Absent, &claim(name, HOUR)).await.expect("an answer"))
}

async fn peek(store: &Sqlite, name: &str) -> Option<Record> {
    store.peek(&key(name)).await.expect("an answer").current
}

/// The same file as an operator's own tools see it.
async fn by_hand(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.expect("the file opens")
}

/// Where a child's file is; none in the test itself.
#[expect(clippy::disallowed_methods, reason = "a child of this test is told by its environment")]
fn child() -> Option<PathBuf> {
    std::env::var(CHILD).ok().map(PathBuf::from)
}

/// This binary, to run one test in a process of its own.
fn as_child(program: &mut Command, test: &str, path: &Path) -> Child {
    let args = ["--exact", test, "--nocapture", "--test-threads=1"];
    let child = program.args(args).env(CHILD, path).stdout(Stdio::piped()).stderr(Stdio::inherit());
    child.spawn().expect("the child starts")
}

fn this_binary() -> PathBuf {
    std::env::current_exe().expect("this binary")
}

#[tokio::test]
async fn records_and_meta_survive_a_restart() {
    let (_directory, path) = place();
    let meta = |seed: u8| Meta { epoch: format!("{seed}"), digest_key: [seed; 32] };
    let (store, first) = (open(&path).await, meta(1));
    assert!(store.meta(meta(1)).await.expect("an answer").meta == first);
    let running = claimed(&store, "running").await;
    let ended = claimed(&store, "ended").await;
    let ended = done(store.swap(&key("ended"), at(&ended, Lease::Any), &success("a", b"x")).await.expect("an answer"));
    drop(store);
    let store = open(&path).await;
    assert_eq!((peek(&store, "running").await, peek(&store, "ended").await), (Some(running), Some(ended)));
    assert!(store.meta(meta(2)).await.expect("an answer").meta == first);
}

/// Scenario 31: a second one is told which file is in use, and the first goes on. When the first is gone, so is the lock.
#[tokio::test]
async fn a_second_server_is_refused_clearly() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let error = Sqlite::open(&path, TIMEOUT).await.err().expect("refused");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()) && text.contains("records.db.lock"), "{text}");
    claimed(&store, "k").await;
    drop(store);
    open(&path).await;
}

/// Scenarios 31 and 33: killed at any moment, the process gives its lock back, and what it had acknowledged is there, whole.
#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    const NAME: &str = "store::sqlite::what_was_acknowledged_survives_a_kill";
    if let Some(path) = child() {
        return write_until_killed(&path).await;
    }
    let (_directory, path) = place();
    let mut acknowledged = Vec::new();
    for round in 1..=3 {
        let mut child = as_child(&mut Command::new(this_binary()), NAME, &path);
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut told =
            lines.map_while(Result::ok).filter_map(|line| Some(line.split_once("acknowledged ")?.1.to_owned()));
        acknowledged.extend(told.by_ref().take(200 * round));
        let refused = Sqlite::open(&path, TIMEOUT).await.err().expect("the child serves");
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
        child.kill().expect("the child can be killed");
        child.wait().expect("the child ends");
        // What it said before it died counts too.
        acknowledged.extend(told);
        let store = open(&path).await;
        for name in &acknowledged {
            assert_eq!(peek(&store, name).await.expect("acknowledged").owner.0, *name);
        }
    }
}

async fn write_until_killed(path: &Path) {
    let store = open(path).await;
    let run = std::process::id();
    let writers = (0..16).map(|task| {
        let store = &store;
        async move {
            for call in 0..1_000_000 {
                let name = format!("{run}.{task}.{call}");
                claimed(store, &name).await;
                writeln!(std::io::stdout(), "acknowledged {name}").expect("the parent listens");
            }
        }
    });
    futures::future::join_all(writers).await;
}

/// Scenario 33: a log whose end is torn, zeroed or scribbled over loses what was not committed before it, and nothing else.
#[tokio::test]
async fn a_torn_log_keeps_every_whole_commit() {
    let (directory, path) = place();
    let store = open(&path).await;
    for at in 0..20 {
        claimed(&store, &at.to_string()).await;
    }
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    let (file, whole) = (std::fs::read(&path).expect("the file"), std::fs::read(log(&path)).expect("the log"));
    drop(store);
    let cut = whole.len() - 3000;
    let torn = whole[..cut].to_vec();
    let zeroed = [&whole[..cut], &vec![0; 3000]].concat();
    let scribbled = [&whole[..cut], &vec![0x5a; 9000]].concat();
    for (name, tail) in [("whole", whole), ("torn", torn), ("zeroed", zeroed), ("scribbled", scribbled)] {
        let copy = directory.path().join(name);
        std::fs::write(&copy, &file).expect("a copy");
        std::fs::write(log(&copy), &tail).expect("a copy");
        let store = open(&copy).await;
        for at in 0..20 {
            let found = peek(&store, &at.to_string()).await.is_some();
            assert!(found || (at == 19 && name != "whole"), "{name}: record {at} is lost");
        }
        claimed(&store, "next").await;
    }
}

/// Scenario 33: a bit that flipped on the disk makes its record a loud fault, for reads and claims, and no other's.
#[tokio::test]
async fn a_flipped_bit_is_told_and_never_replayed() {
    let (_directory, path) = place();
    let store = open(&path).await;
    for (name, body) in [("bad", b"paid 1000 EUR" as &[u8]), ("good", b"paid 20 EUR")] {
        let first = claimed(&store, name).await;
        done(store.swap(&key(name), at(&first, Lease::Any), &success(name, body)).await.expect("an answer"));
    }
    drop(store);
    let mut file = std::fs::read(&path).expect("the file");
    let spots = file.windows(9).enumerate().filter(|(_, octets)| octets == b"paid 1000").map(|(at, _)| at);
    for spot in spots.collect::<Vec<_>>() {
        file[spot + 5] ^= 1;
    }
    std::fs::write(&path, file).expect("the file");
    let store = open(&path).await;
    let peeked = store.peek(&key("bad")).await.expect_err("it was changed");
    let claimed = store.swap(&key("bad"), Expect::Absent, &claim("b", HOUR)).await.expect_err("it was changed");
    assert_eq!((peeked.kind, claimed.kind), (StoreFault::Corrupt, StoreFault::Corrupt));
    assert!(peek(&store, "good").await.is_some());
}

/// `explain` works beside `serve`, sees what was just written, writes nothing, and needs no running server.
#[tokio::test]
async fn a_reader_looks_in_beside_the_server() {
    let (_directory, path) = place();
    assert!(Sqlite::look(&path, TIMEOUT).await.is_err(), "there is no such file");
    assert!(!path.exists(), "looking made a file");
    let store = open(&path).await;
    let meta = store.meta(Meta { epoch: "e".into(), digest_key: [3; 32] }).await.expect("an answer").meta;
    let reader = Sqlite::look(&path, TIMEOUT).await.expect("it opens beside");
    for name in ["a", "b"] {
        let record = claimed(&store, name).await;
        assert_eq!(peek(&reader, name).await, Some(record));
    }
    let error = reader.swap(&key("c"), Expect::Absent, &claim("c", HOUR)).await.expect_err("it only looks");
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Refused, false));
    let offered = Meta { epoch: "other".into(), digest_key: [4; 32] };
    assert!(reader.meta(offered).await.expect("an answer").meta == meta);
    drop((reader, store));
    let reader = Sqlite::look(&path, TIMEOUT).await.expect("it opens alone");
    assert!(peek(&reader, "a").await.is_some());
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_refused_clearly() {
    let (directory, path) = place();
    drop(open(&path).await);
    let mut operator = by_hand(&path).await;
    sqlx::query("PRAGMA user_version = 7").execute(&mut operator).await.expect("set");
    operator.close().await.expect("closed");
    let error = Sqlite::open(&path, TIMEOUT).await.err().expect("refused");
    assert!(matches!(error, OpenError::Newer { found: 7, .. }), "{error}");
    let other = directory.path().join("notes.txt");
    std::fs::write(&other, "not a database, however long it may be".repeat(500)).expect("written");
    let error = Sqlite::open(&other, TIMEOUT).await.err().expect("refused");
    assert!(error.to_string().contains("notes.txt"), "{error}");
    let nowhere = directory.path().join("nowhere/records.db");
    assert!(matches!(Sqlite::open(&nowhere, TIMEOUT).await, Err(OpenError::File { .. })));
}

/// The file belongs to no core: the runtime that opened it may end.
#[test]
fn the_store_outlives_the_runtime_that_opened_it() {
    let (_directory, path) = place();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = runtime().block_on(open(&path));
    for name in ["a", "b"] {
        runtime().block_on(async {
            claimed(&store, name).await;
            assert!(peek(&store, name).await.is_some());
        });
    }
}

/// While another program holds the file, each call ends at its deadline, reads go on, and afterwards so do writes.
#[tokio::test]
async fn a_file_that_another_program_holds_costs_a_deadline() {
    let (_directory, path) = place();
    let timeout = Duration::from_millis(200);
    let store = Sqlite::open(&path, timeout).await.expect("the file opens");
    claimed(&store, "before").await;
    let mut operator = by_hand(&path).await;
    let held = operator.begin_with("BEGIN IMMEDIATE").await.expect("held");
    for _ in 0..3 {
        let started = Instant::now();
        let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("the file is held");
        assert!(matches!(error.kind, StoreFault::Timeout | StoreFault::Refused), "{error}");
        assert!(started.elapsed() < timeout * 4, "{:?}", started.elapsed());
        assert!(peek(&store, "before").await.is_some());
    }
    held.rollback().await.expect("let go");
    eventually("writes go on", async || store.ping().await.ok()).await;
}

/// Scenario 35: what has expired is cleared away by itself, what lives is not, and the file stops growing.
#[tokio::test]
async fn expired_records_are_cleared_away() {
    let (_directory, path) = place();
    let store = open(&path).await;
    claimed(&store, "living").await;
    let brief = Draft { ttl: Ttl::Exactly(Duration::from_millis(1)), ..success("a", &[7; 2000]) };
    for round in 0..12 {
        let names = (0..300).map(|at| format!("{round}.{at}")).collect::<Vec<_>>();
        let writes = names.iter().map(|name| async { store.swap(&key(name), Expect::Absent, &brief).await });
        for swap in futures::future::join_all(writes).await {
            done(swap.expect("an answer"));
        }
    }
    let mut operator = by_hand(&path).await;
    eventually("all but one are gone", async || {
        let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM idempotency_records");
        (count.fetch_one(&mut operator).await.expect("counted") == 1).then_some(())
    })
    .await;
    assert!(peek(&store, "living").await.is_some());
    let size = std::fs::metadata(&path).expect("the file").len();
    assert!(size < 12 * 300 * 2000 / 3, "{size} bytes for records that are gone");
}

/// Many callers share a commit: sixty-four of them get far more done than one after another.
#[tokio::test]
async fn many_callers_share_a_commit() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let rate = async |callers: usize, calls: usize| {
        let started = Instant::now();
        let work = (0..callers).map(|caller| {
            let store = &store;
            async move {
                for call in 0..calls {
                    claimed(store, &format!("{callers}.{caller}.{call}")).await;
                }
            }
        });
        futures::future::join_all(work).await;
        f64::from(u32::try_from(callers * calls).unwrap_or(u32::MAX)) / started.elapsed().as_secs_f64()
    };
    let (one, many) = (rate(1, 200).await, rate(64, 50).await);
    writeln!(std::io::stderr(), "{one:.0} writes/s by one caller, {many:.0} by sixty-four").expect("told");
    assert!(many > 1.5 * one, "{many:.0} against {one:.0} writes/s");
}

/// Scenario 32: on a full disk nothing new begins, replays are served, and what runs still ends, in the space kept for it. Reopened
/// while full, nothing breaks; when there is space again, all goes on by itself.
#[tokio::test]
async fn a_full_disk_still_ends_what_it_began() {
    const NAME: &str = "store::sqlite::a_full_disk_still_ends_what_it_began";
    if let Some(path) = child() {
        return fill_up(&path).await;
    }
    // A disk of its own, in namespaces of its own, so that this needs no privilege.
    let (directory, path) = place();
    let script = r#"mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@""#;
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(directory.path()).arg(this_binary());
    let output = as_child(&mut unshare, NAME, &path).wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "needs unshare(1) with user namespaces; it said: {text}");
    assert!(text.contains("1 passed"), "{text}");
}

async fn fill_up(path: &Path) {
    let store = open(path).await;
    let mut running = Vec::new();
    for at in 0..50 {
        running.push(claimed(&store, &format!("running-{at}")).await);
    }
    let ballast = path.with_file_name("ballast");
    let fill = || {
        let mut file = std::fs::File::options().append(true).create(true).open(&ballast).expect("ballast");
        while file.write_all(&[1; 4096]).is_ok() {}
    };
    let mut tries = 0;
    let big = success("a", &[7; 20_000]);
    let error = eventually("the disk is full", async || {
        fill();
        tries += 1;
        store.swap(&key(&format!("new-{tries}")), Expect::Absent, &claim("x", HOUR)).await.err()
    })
    .await;
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Refused, false), "{error}");
    assert_eq!(store.ping().await.expect_err("full").kind, StoreFault::Refused);
    let end = async |store: &Sqlite, first: &Record| {
        let name = key(&first.owner.0);
        done(store.swap(&name, at(first, Lease::Live), &heartbeat(&first.owner.0, HOUR)).await.expect("a heartbeat"));
        done(store.swap(&name, at(first, Lease::Any), &big).await.expect("a finalise"));
        let replay = store.swap(&name, Expect::Absent, &claim("x", HOUR)).await.expect("a duplicate");
        assert!(refused(replay).is_some_and(|record| record.finished_at.is_some()));
    };
    for first in &running[..20] {
        end(&store, first).await;
    }
    drop(store);
    let store = open(path).await;
    for first in &running[20..40] {
        end(&store, first).await;
    }
    std::fs::remove_file(&ballast).expect("space again");
    eventually("new events begin again", async || store.ping().await.ok()).await;
    claimed(&store, "after").await;
    for first in &running[40..] {
        end(&store, first).await;
    }
}
