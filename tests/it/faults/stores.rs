//! The stores that a process's crash must not empty, each a server or a file of the test's own.

use std::net::SocketAddr;

use crate::support::config::SQLITE;
use crate::support::postgres::PostgresServer;
use crate::support::random::Random;
use crate::support::redis::RedisServer;
use crate::support::redis_groups::{Cluster, Watched};

/// One store, gone with the value.
pub struct TestStore {
    pub name: &'static str,
    pub url: String,
    /// Whether several gateways may share it.
    pub shared: bool,
    /// Where its one server listens; none for a file, and for several servers.
    server: Option<u16>,
    ground: Ground,
}

/// What runs behind it.
enum Ground {
    File,
    Redis(RedisServer),
    Watched(Watched),
    Cluster(Cluster),
    Postgres(PostgresServer),
    /// A file, and a Redis that holds copies only.
    Front(RedisServer),
}

/// What a store suffers in a random run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// Killed, and started again with all that it had acknowledged; a front without.
    Restart,
    /// It forgets everything.
    Empty,
    /// A replica becomes the master, without what did not reach it.
    FailOver,
    /// Its clock steps.
    Clock,
}

impl TestStore {
    /// Where its server listens, for one that has one server.
    pub fn server_address(&self) -> Option<SocketAddr> {
        self.server.map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// What it can suffer in this run: the first strikes once, the others at random. A store that is emptied keeps its clock, since a
    /// forgotten fence is only known by the time.
    pub fn faults(&self, seed: u64) -> &'static [StoreFault] {
        match &self.ground {
            Ground::File => &[],
            Ground::Redis(_) if seed.is_multiple_of(2) => &[StoreFault::Clock, StoreFault::Clock, StoreFault::Restart],
            Ground::Redis(_) => &[StoreFault::Empty, StoreFault::Restart],
            Ground::Postgres(_) | Ground::Front(_) => &[StoreFault::Restart, StoreFault::Restart],
            Ground::Watched(_) | Ground::Cluster(_) => &[StoreFault::FailOver],
        }
    }

    /// Suffers it, and waits until it is over. `clock_ms` is how far the clock is off by now.
    pub fn suffer(&mut self, fault: StoreFault, random: &mut Random, clock_ms: &mut i32) {
        match (fault, &mut self.ground) {
            (StoreFault::Restart, Ground::Redis(server) | Ground::Front(server)) => server.restart(),
            (StoreFault::Restart, Ground::Postgres(server)) => server.restart(),
            (StoreFault::Empty, Ground::Redis(server)) => assert_eq!(server.cli(&["FLUSHALL"]), "OK"),
            (StoreFault::FailOver, Ground::Watched(watched)) => {
                let before = watched.master();
                watched.fail_over();
                watched.wait_for_demotion_of(before);
            }
            (StoreFault::FailOver, Ground::Cluster(cluster)) => {
                cluster.take_over(usize::try_from(random.below(3)).unwrap());
            }
            (StoreFault::Clock, Ground::Redis(server)) => {
                // Hours ahead end every lease; a step back lengthens them, and no fence may fall behind.
                *clock_ms += if random.percent(60) { 3_600_000 } else { -400 };
                server.set_clock(&format!("{:+.3}", f64::from(*clock_ms) / 1e3));
            }
            (fault, _) => unreachable!("{fault:?} is nothing that {} suffers", self.name),
        }
    }
}

/// One of each kind.
pub fn all() -> Vec<TestStore> {
    vec![sqlite(), redis(), sentinel(), cluster(), postgres(), front()]
}

/// A file in the gateway's directory.
pub fn sqlite() -> TestStore {
    TestStore { name: "sqlite", url: SQLITE.to_owned(), shared: false, server: None, ground: Ground::File }
}

/// A single Redis.
pub fn redis() -> TestStore {
    over(RedisServer::start())
}

/// A single Redis that keeps what it acknowledged over a crash, and whose clock can be set.
pub fn lasting_redis() -> TestStore {
    over(RedisServer::start_with_clock_and(&["--appendonly", "yes", "--appendfsync", "always"]))
}

fn over(server: RedisServer) -> TestStore {
    let (url, port) = (server.url(), Some(server.port()));
    TestStore { name: "redis", url, shared: true, server: port, ground: Ground::Redis(server) }
}

/// A master and a replica behind three Sentinels.
pub fn sentinel() -> TestStore {
    let watched = Watched::start();
    TestStore { name: "sentinel", url: watched.url(), shared: true, server: None, ground: Ground::Watched(watched) }
}

/// Three masters.
pub fn cluster() -> TestStore {
    among(Cluster::start(&[]))
}

/// Three masters with a replica each.
pub fn cluster_with_replicas() -> TestStore {
    among(Cluster::start_with_replicas())
}

fn among(cluster: Cluster) -> TestStore {
    TestStore { name: "cluster", url: cluster.url(), shared: true, server: None, ground: Ground::Cluster(cluster) }
}

/// A PostgreSQL server.
pub fn postgres() -> TestStore {
    let server = PostgresServer::start();
    let (url, port) = (server.url("postgres"), Some(server.port()));
    TestStore { name: "postgres", url, shared: true, server: port, ground: Ground::Postgres(server) }
}

/// A file in the gateway's directory with a Redis in front of it.
pub fn front() -> TestStore {
    let server = RedisServer::start();
    // The end of the text is the end of the address's line: a second key follows it.
    let url = format!("{SQLITE}\"\nfront = \"{}", server.url());
    TestStore { name: "front", url, shared: false, server: None, ground: Ground::Front(server) }
}
