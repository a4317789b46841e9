//! The stores that a process's crash must not empty, each a server or a file of the test's own.

use std::net::SocketAddr;

use crate::support::config::SQLITE;
use crate::support::redis::RedisServer;

/// One store, gone with the value.
pub struct TestStore {
    pub name: &'static str,
    pub url: String,
    /// Whether several gateways may share it.
    pub shared: bool,
    server: Option<RedisServer>,
}

impl TestStore {
    /// Where its server listens, for one that has a server.
    pub fn server_address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| SocketAddr::from(([127, 0, 0, 1], server.port())))
    }
}

/// One of each kind.
pub fn all() -> Vec<TestStore> {
    vec![sqlite(), redis()]
}

/// A file in the gateway's directory.
pub fn sqlite() -> TestStore {
    TestStore { name: "sqlite", url: SQLITE.to_owned(), shared: false, server: None }
}

/// A single Redis.
pub fn redis() -> TestStore {
    let server = RedisServer::start();
    TestStore { name: "redis", url: server.url(), shared: true, server: Some(server) }
}
