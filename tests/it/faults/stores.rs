//! The stores that a process's crash must not empty, each a server or a file of the test's own.

use std::any::Any;
use std::net::SocketAddr;

use crate::support::config::SQLITE;
use crate::support::postgres::PostgresServer;
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
    _ground: Box<dyn Any + Send + Sync>,
}

impl TestStore {
    /// Where its server listens, for one that has one server.
    pub fn server_address(&self) -> Option<SocketAddr> {
        self.server.map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

/// One of each kind.
pub fn all() -> Vec<TestStore> {
    vec![sqlite(), redis(), sentinel(), cluster(), postgres(), front()]
}

/// A file in the gateway's directory.
pub fn sqlite() -> TestStore {
    TestStore { name: "sqlite", url: SQLITE.to_owned(), shared: false, server: None, _ground: Box::new(()) }
}

/// A single Redis.
pub fn redis() -> TestStore {
    let server = RedisServer::start();
    let (url, port) = (server.url(), Some(server.port()));
    TestStore { name: "redis", url, shared: true, server: port, _ground: Box::new(server) }
}

/// A master and a replica behind three Sentinels.
pub fn sentinel() -> TestStore {
    let watched = Watched::start();
    TestStore { name: "sentinel", url: watched.url(), shared: true, server: None, _ground: Box::new(watched) }
}

/// Three masters.
pub fn cluster() -> TestStore {
    let cluster = Cluster::start(&[]);
    TestStore { name: "cluster", url: cluster.url(), shared: true, server: None, _ground: Box::new(cluster) }
}

/// A PostgreSQL server.
pub fn postgres() -> TestStore {
    let server = PostgresServer::start();
    let (url, port) = (server.url("postgres"), Some(server.port()));
    TestStore { name: "postgres", url, shared: true, server: port, _ground: Box::new(server) }
}

/// A file in the gateway's directory with a Redis in front of it.
pub fn front() -> TestStore {
    let server = RedisServer::start();
    // The end of the text is the end of the address's line: a second key follows it.
    let url = format!("{SQLITE}\"\nfront = \"{}", server.url());
    TestStore { name: "front", url, shared: false, server: None, _ground: Box::new(server) }
}
