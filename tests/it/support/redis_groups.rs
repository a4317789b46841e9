//! Several Redis servers that belong together: a cluster, and a master with its replica behind Sentinels; all of it over TLS too.

use std::time::{Duration, Instant};

use super::authority::Authority;
use super::redis::{RedisServer, free_port};

const FORMS_WITHIN: Duration = Duration::from_secs(30);

/// Three masters with a third of the slots each; a replica of each behind them, or none.
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Forms a cluster and waits until every node serves. `options` stand on each server's command line.
    pub fn start(options: &[&str]) -> Self {
        Self::form(options, None)
    }

    /// One whose clients and nodes speak TLS.
    pub fn start_tls(authority: &Authority) -> Self {
        Self::form(&["--tls-cluster", "yes"], Some(authority))
    }

    fn form(options: &[&str], authority: Option<&Authority>) -> Self {
        let all = [options, &["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]].concat();
        let node = |_| {
            let bus = free_port().to_string();
            let tls = tls_options(authority);
            let tls = tls.iter().map(String::as_str).collect::<Vec<_>>();
            RedisServer::start_with(&[all.as_slice(), &["--cluster-port", &bus], &tls].concat())
        };
        let nodes: Vec<RedisServer> = (0..3).map(node).collect();
        for (node, slots) in nodes.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
            assert_eq!(node.cli(&["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]), "OK");
        }
        let (port, bus) = (nodes[0].client_port(), nodes[0].option("--cluster-port").expect("its bus"));
        for node in &nodes[1..] {
            assert_eq!(node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "OK");
        }
        let cluster = Self { nodes };
        cluster.wait();
        cluster
    }

    /// With a replica of each master.
    pub fn start_with_replicas() -> Self {
        let mut cluster = Self::start(&[]);
        for master in 0..3 {
            let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port"];
            let replica = RedisServer::start_with(&[options.as_slice(), &[&free_port().to_string()]].concat());
            let first = &cluster.nodes[0];
            let (port, bus) = (first.client_port(), first.option("--cluster-port").expect("its bus"));
            assert_eq!(replica.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "OK");
            let id = cluster.id(master);
            until("a node becomes a replica", || replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK");
            cluster.nodes.push(replica);
        }
        cluster.wait();
        until("the replicas follow", || cluster.nodes.iter().filter(|node| follows(node)).count() == 3);
        cluster
    }

    /// Makes one of the replicas a master without a word to its old one, and waits until that follows it.
    pub fn take_over(&self, which: usize) {
        let replicas: Vec<_> = self.nodes.iter().filter(|node| follows(node)).collect();
        let next = replicas[which % replicas.len()];
        assert_eq!(next.cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK");
        until("the replica is master, and the master replica", || {
            next.cli(&["ROLE"]).starts_with("master") && self.nodes.iter().filter(|node| follows(node)).count() == 3
        });
        self.wait();
    }

    /// Waits until every node says that all is well and knows all others.
    pub fn wait(&self) {
        until("the cluster forms", || {
            self.nodes.iter().all(|node| {
                let info = node.cli(&["CLUSTER", "INFO"]);
                let all = format!("cluster_known_nodes:{}\r", self.nodes.len());
                info.contains("cluster_state:ok") && info.contains(&all)
            })
        });
    }

    pub fn url(&self) -> String {
        format!("redis+cluster://{}", hosts(&self.nodes))
    }

    /// The node with this id, as the cluster knows it.
    pub fn id(&self, node: usize) -> String {
        self.nodes[node].cli(&["CLUSTER", "MYID"])
    }
}

/// A master and a replica, and three Sentinels that watch them.
pub struct Watched {
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<RedisServer>,
}

/// The master's name.
pub const MASTER: &str = "pay";

impl Watched {
    /// Starts all and waits until the Sentinels agree.
    pub fn start() -> Self {
        Self::form(None)
    }

    /// All of them speak TLS, with their clients and with one another.
    pub fn start_tls(authority: &Authority) -> Self {
        Self::form(Some(authority))
    }

    fn form(authority: Option<&Authority>) -> Self {
        let options = || {
            let mut options = tls_options(authority);
            if authority.is_some() {
                options.extend(["--tls-replication", "yes"].map(str::to_owned));
            }
            options
        };
        let server = |more: &[&str]| {
            let options = options();
            RedisServer::start_with(&[more, &options.iter().map(String::as_str).collect::<Vec<_>>()].concat())
        };
        let master = server(&[]);
        let port = master.client_port();
        let replica = server(&["--replicaof", "127.0.0.1", &port]);
        let servers = vec![master, replica];
        let sentinels: Vec<RedisServer> = (0..3)
            .map(|_| {
                let config = format!(
                    "sentinel monitor {MASTER} 127.0.0.1 {port} 2\nsentinel down-after-milliseconds {MASTER} 400\n\
                     sentinel failover-timeout {MASTER} 2000\n"
                );
                RedisServer::start_sentinel(&config, &options().iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        let watched = Self { servers, sentinels };
        until("the Sentinels agree", || {
            watched.sentinels.iter().all(|sentinel| {
                sentinel.cli(&["SENTINEL", "CKQUORUM", MASTER]).starts_with("OK 3")
                    && sentinel.cli(&["SENTINEL", "REPLICAS", MASTER]).contains(&watched.servers[1].client_port())
            })
        });
        until("the replica follows", || {
            watched.servers[1].cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        watched
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{MASTER}", hosts(&self.sentinels))
    }

    /// Which of the servers the Sentinels call the master.
    pub fn master(&self) -> usize {
        let told = self.sentinels[0].cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
        let port = told.lines().last().unwrap_or_default().to_owned();
        self.servers.iter().position(|server| server.client_port() == port).expect("one of ours")
    }

    /// Makes the replica the master, and waits until all Sentinels say so. The old master may not know it for a while yet.
    pub fn fail_over(&self) {
        let before = self.master();
        let mut asked = String::new();
        until("a failover begins", || {
            asked = self.sentinels[0].cli(&["SENTINEL", "FAILOVER", MASTER]);
            asked == "OK"
        });
        self.wait_for_other_than(before);
    }

    /// Waits until the old master follows the new one, so that nothing is written to it any more.
    pub fn wait_for_demotion_of(&self, old: usize) {
        until("the old master follows", || follows(&self.servers[old]));
    }

    /// Waits until all Sentinels name another master, which is one.
    pub fn wait_for_other_than(&self, before: usize) {
        let other = self.servers[1 - before].client_port();
        until("another master", || {
            self.sentinels
                .iter()
                .all(|sentinel| sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).ends_with(&other))
                && self.servers[1 - before].cli(&["ROLE"]).starts_with("master")
        });
    }
}

/// A replica whose link to its master stands.
fn follows(node: &RedisServer) -> bool {
    node.cli(&["INFO", "replication"]).contains("master_link_status:up")
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + FORMS_WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        #[expect(clippy::disallowed_methods, reason = "a test that waits for other processes")]
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A certificate and a port for clients over TLS, beside the plain one.
fn tls_options(authority: Option<&Authority>) -> Vec<String> {
    authority.map(|authority| authority.redis_options(free_port())).unwrap_or_default()
}

/// Where clients come, as an address lists it.
fn hosts(servers: &[RedisServer]) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.client_port())).collect();
    hosts.join(",")
}
