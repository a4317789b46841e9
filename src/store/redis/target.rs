//! Where a Redis is: one server, a master that Sentinels know, or a cluster; and a connection to any of them.

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo, ProtocolVersion,
    RedisError, RedisResult, TlsMode, Value,
};

use super::address::Address;

/// In a cluster: redirections, and waits for a slot that is being moved, that one call may go through. The caller's deadline
/// ends it in any case.
const REDIRECTIONS_MAX: u32 = 16;
const REDIRECTION_WAIT_MS: (u64, u64) = (10, 100);

/// A kind of Redis, with what is needed to connect. Cheap to clone.
#[derive(Clone)]
pub(super) enum Target {
    /// One server.
    Server(Box<Client>),
    /// The master of this name, as the Sentinels know it.
    Sentinel(Box<Address>),
    /// The shards that these nodes know.
    Cluster(Box<ClusterClient>),
}

/// A connection over which many calls go at once.
#[derive(Clone)]
pub(super) enum Commands {
    /// To one server.
    Server(MultiplexedConnection),
    /// To all shards.
    Cluster(ClusterConnection),
}

impl Target {
    /// Reads an address; connects nowhere yet.
    ///
    /// # Errors
    /// When it cannot be read. Its text is not repeated, since it may hold a password.
    pub(super) fn new(url: &str) -> RedisResult<Self> {
        if let Some(rest) = url.strip_prefix("redis+sentinel://") {
            let address = Address::parse(rest, 26379)?;
            sentinels(&address, 0)?;
            return Ok(Self::Sentinel(Box::new(address)));
        }
        if let Some(rest) = url.strip_prefix("redis+cluster://") {
            return Ok(Self::Cluster(Box::new(cluster(&Address::parse(rest, 6379)?)?)));
        }
        let info = url.into_connection_info()?;
        // RESP3 alone reports a closed connection at once, so that an idle one that went away does not cost the next caller.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Ok(Self::Server(Box::new(Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp()))?)))
    }

    /// Whether keys are spread over shards, so that one script reaches only what shares a slot.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// A new connection. `attempt` counts them: the Sentinels are asked from another one on each time, so that one that swallows
    /// what it gets does not take every caller's time.
    pub(super) async fn connect(&self, attempt: u32, config: &AsyncConnectionConfig) -> RedisResult<Commands> {
        match self {
            Self::Server(client) => {
                client.get_multiplexed_async_connection_with_config(config).await.map(Commands::Server)
            }
            // Asked anew each time: who was the master when the last connection was made does not count.
            Self::Sentinel(address) => {
                let mut client = sentinels(address, attempt)?;
                client.get_async_connection_with_config(config).await.map(Commands::Server)
            }
            Self::Cluster(client) => client.get_async_connection().await.map(Commands::Cluster),
        }
    }
}

impl Commands {
    /// One command, sent where its key lives.
    pub(super) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    /// One command to every node that holds keys of its own: the answers by node. A single server is `""`.
    pub(super) async fn everywhere(&mut self, command: &Cmd) -> RedisResult<Vec<(String, Value)>> {
        match self {
            Self::Server(_) => Ok(vec![(String::new(), self.query(command).await?)]),
            Self::Cluster(connection) => {
                let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let answers = connection.route_command(command.clone(), routing).await?;
                Ok(Vec::<(String, Value)>::from_redis_value(answers)?)
            }
        }
    }

    /// One command to a node that [`Self::everywhere`] named.
    pub(super) async fn at(&mut self, node: &str, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(_) => self.query(command).await,
            Self::Cluster(connection) => {
                let (host, port) = node.rsplit_once(':').unwrap_or((node, ""));
                let port = port.parse().map_err(|_| unusable("a node's address has no port"))?;
                let routing = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
                connection.route_command(command.clone(), RoutingInfo::SingleNode(routing)).await
            }
        }
    }
}

/// Small commands must not wait for the acknowledgement of the ones before.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn sentinels(address: &Address, first: u32) -> RedisResult<SentinelClient> {
    let mut nodes: Vec<ConnectionAddr> = address.nodes.iter().map(|node| address.connect_to(node)).collect();
    let count = nodes.len().max(1);
    nodes.rotate_left(usize::try_from(first).unwrap_or_default() % count);
    let mut builder = SentinelClientBuilder::new(nodes, &address.master, SentinelServerType::Master)?
        .set_client_to_redis_protocol(ProtocolVersion::RESP3)
        .set_client_to_redis_db(address.database)
        .set_client_to_redis_tcp_settings(tcp());
    if address.tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(user) = &address.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &address.password {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = &address.sentinel_user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &address.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    builder.build()
}

fn cluster(address: &Address) -> RedisResult<ClusterClient> {
    let nodes = address.nodes.iter().map(|node| address.connect_to(node).into_connection_info());
    let mut builder = ClusterClient::builder(nodes.collect::<RedisResult<Vec<_>>>()?)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(tcp())
        .retries(REDIRECTIONS_MAX)
        .min_retry_wait(REDIRECTION_WAIT_MS.0)
        .max_retry_wait(REDIRECTION_WAIT_MS.1);
    if address.tls {
        builder = builder.tls(TlsMode::Secure);
    }
    if let Some(user) = &address.user {
        builder = builder.username(user);
    }
    if let Some(password) = &address.password {
        builder = builder.password(password);
    }
    builder.build()
}

/// A client that cannot be made.
pub(super) fn unusable(why: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, why).into()
}
