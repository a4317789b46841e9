//! Records in Redis (7 or newer): a hash a key, changed by one script in one round trip.

mod address;
mod front;
mod link;
mod look;
mod names;
mod script;
mod target;

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, FromRedisValue, RedisError, ServerErrorKind, Value, cmd};
use tokio::time::Instant;

use crate::event::{ScopeKey, Timestamp};
use crate::idempotency::{Draft, Expect, Fence, Record};

use super::codec;
use super::{Entry, Facts, Filter, Found, Listed, Meta, Seen, Store, StoreError, StoreFault, Swap};
use link::Link;
use names::Names;
use script::{Script, is_open, swap_args};
use target::{Commands, Target};

const SWAP: &str = include_str!("redis/swap.lua");
const PEEK: &str = include_str!("redis/peek.lua");
const FRONT: &str = include_str!("redis/front.lua");
const META: &str = include_str!("redis/meta.lua");

const META_KEY: &str = "onceward:meta";
const PING_KEY: &str = "onceward:ping";
const PING_TTL_MS: u64 = 1000;

/// A handle on a Redis: one server, the master behind Sentinels, or a cluster. One connection, for one runtime; make one a core.
///
/// Redis acknowledges a write before its replicas have it, so a failover may lose a claim; the fence, which is seeded from the
/// clock, then still tells the two owners apart.
pub struct Redis {
    link: Link,
    timeout: Duration,
    claim: Script,
    renew: Script,
    peek: Script,
    meta: Script,
    front: Script,
}

impl Redis {
    /// A handle for a `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://` address. Connects when first used, so a server that is down now may come later.
    /// `timeout` is the longest that one call may take, connecting included.
    ///
    /// # Errors
    /// When the address cannot be read. Its text is not repeated, since it may hold a password.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        Ok(Self::over(Link::to(Target::new(url)?), timeout))
    }

    /// A further handle on the same server, with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::over(self.link.another(), self.timeout)
    }

    fn over(link: Link, timeout: Duration) -> Self {
        Self {
            link,
            timeout,
            // At maxmemory a plain script runs up to its first write: new claims are refused, duplicates still learn what stands.
            claim: Script::new(SWAP.to_owned()),
            // What continues or ends a claim must pass even then. The flag needs the shebang, which would refuse the other whole.
            renew: Script::new(format!("#!lua flags=allow-oom\n{SWAP}")),
            peek: Script::new(PEEK.to_owned()),
            meta: Script::new(META.to_owned()),
            front: Script::new(FRONT.to_owned()),
        }
    }

    fn names(&self) -> Names {
        Names { tagged: self.link.target().is_cluster() }
    }

    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[Cow<'_, [u8]>],
    ) -> Result<T, StoreError> {
        let reply = self.bounded(&Call::Script(script, keys, args)).await?;
        T::from_redis_value(reply).map_err(|error| corrupt(&error))
    }

    /// One call on the connection, within the deadline.
    async fn bounded(&self, call: &Call<'_>) -> Result<Value, StoreError> {
        let deadline = Instant::now() + self.timeout;
        match self.once(deadline, call).await {
            // A master that was demoted keeps its connections and refuses every write. It did nothing, so the same call may go to
            // whoever is the master now.
            Err(refused) if refused.read_only => match self.once(deadline, call).await {
                // Nobody else is there yet: what the one that was there said tells more.
                Err(unsent) if !unsent.error.may_be_applied() => Err(refused),
                done => done,
            },
            done => done,
        }
        .map_err(|fault| fault.error)
    }

    async fn once(&self, deadline: Instant, call: &Call<'_>) -> Result<Value, Fault> {
        let connection = match tokio::time::timeout_at(deadline, self.link.connection()).await {
            Ok(connection) => connection?,
            Err(_) => {
                return Err(StoreError::new(StoreFault::Unreachable, "no connection in time").not_applied().into());
            }
        };
        match tokio::time::timeout_at(deadline, call.on(connection.commands.clone())).await {
            Ok(Ok(reply)) => {
                self.link.succeeded();
                Ok(reply)
            }
            Ok(Err(error)) => {
                let fault = Fault { read_only: error.kind() == ServerErrorKind::ReadOnly.into(), error: fault(&error) };
                if fault.read_only || fault.error.kind == StoreFault::Unreachable {
                    self.link.retire(&connection);
                }
                if self.names().tagged {
                    // A cluster's client tries again by itself: an earlier try may have been written.
                    return Err(Fault { error: fault.error.in_doubt(), ..fault });
                }
                Err(fault)
            }
            Err(_) => {
                // Its reply may still come. Nobody else shall wait behind it, or ever read it as theirs.
                self.link.retire(&connection);
                Err(StoreError::new(StoreFault::Timeout, format_args!("no reply within {:?}", self.timeout)).into())
            }
        }
    }
}

/// What is asked of a Redis.
enum Call<'a> {
    /// A script, with its keys and arguments.
    Script(&'a Script, &'a [&'a str], &'a [Cow<'a, [u8]>]),
    /// A command, where its key lives.
    Command(&'a Cmd),
    /// A command to a node.
    At(&'a str, &'a Cmd),
}

impl Call<'_> {
    async fn on(&self, mut commands: Commands) -> Result<Value, RedisError> {
        match self {
            Self::Script(script, keys, args) => match commands.query(&script.by_hash(keys, args)).await {
                // After a restart, a failover or SCRIPT FLUSH. EVAL, not a reload first: another flush could come between.
                Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                    commands.query(&script.by_source(keys, args)).await
                }
                reply => reply,
            },
            Self::Command(command) => commands.query(command).await,
            Self::At(node, command) => commands.at(node, command).await,
        }
    }
}

/// A call that failed, and whether it met a server that takes no writes.
struct Fault {
    error: StoreError,
    read_only: bool,
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self { error, read_only: false }
    }
}

#[async_trait]
impl Store for Redis {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let script = match draft.fence {
            Fence::Next { .. } => &self.claim,
            Fence::Keep => &self.renew,
        };
        let content = codec::content(draft);
        let name = codec::notes::key(key);
        let args = swap_args(expect, draft, &content, (&name, &key.namespace));
        let (record, index) = (self.names().record(key), Names::index(&key.tenant));
        let namespaces = Names::namespaces(&key.tenant, &key.scope);
        let reply: Vec<Value> = if self.names().tagged {
            let keys = [record.as_str()];
            let reply = self.run(script, &keys, &args);
            let beside = self.index_beside(key, &record, is_open(draft.state.status()), draft.fence);
            tokio::join!(reply, beside).0?
        } else {
            self.run(script, &[&record, &index, &namespaces], &args).await?
        };
        match <[Value; 6]>::try_from(reply) {
            Ok([_, now, fence, started_at, lease_until, expires_at]) => {
                let stamped = draft.stamp(time(now)?, None);
                Ok(Swap::Done(Box::new(Record {
                    fence: integer(fence)?,
                    started_at: time(started_at)?,
                    lease_until: time(lease_until)?,
                    expires_at: time(expires_at)?,
                    ..stamped
                })))
            }
            Err(refused) => match <[Value; 3]>::try_from(refused) {
                Ok([_, now, fields]) => Ok(Swap::Refused(Box::new(seen(now, fields)?))),
                Err(_) => Err(corrupt(&"a script's reply has an unknown form")),
            },
        }
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        let (now, fields): (Value, Value) = self.run(&self.peek, &[&self.names().record(key)], &[]).await?;
        seen(now, fields)
    }

    /// A write, since a full or demoted server answers everything else.
    async fn ping(&self) -> Result<(), StoreError> {
        let mut set = cmd("SET");
        set.arg(PING_KEY).arg(1).arg("PX").arg(PING_TTL_MS);
        self.bounded(&Call::Command(&set)).await.map(|_| ())
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        let digest_key = hex::encode(offer.digest_key);
        let args = [Cow::Borrowed(offer.epoch.as_bytes()), Cow::Borrowed(digest_key.as_bytes())];
        let (made, epoch, digest_key): (bool, Option<String>, Option<String>) =
            self.run(&self.meta, &[META_KEY], &args).await?;
        let digest_key = digest_key.and_then(|text| hex::decode(text).ok()?.try_into().ok());
        match (epoch, digest_key) {
            (Some(epoch), Some(digest_key)) => Ok(Found { meta: Meta { epoch, digest_key }, made }),
            _ => Err(corrupt(&format_args!("`{META_KEY}` is not the store's meta record"))),
        }
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        look::list(self, tenant, filter).await
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        look::find(self, tenant, scope, readable_key).await
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        look::facts(self).await
    }
}

/// What a key holds, from the fields of its hash. The server clears expired keys away a little late; here they are absent on time.
fn seen(now: Value, fields: Value) -> Result<Seen, StoreError> {
    let now = time(now)?;
    let fields = Vec::<(Vec<u8>, Vec<u8>)>::from_redis_value(fields).map_err(|error| corrupt(&error))?;
    if fields.is_empty() {
        return Ok(Seen { current: None, now });
    }
    let mut row = codec::Row::default();
    for (name, value) in fields {
        row.insert(&name, value);
    }
    let record = row.decode()?;
    Ok(Seen { current: Some(record).filter(|record| record.expires_at > now), now })
}

fn time(value: Value) -> Result<Timestamp, StoreError> {
    integer(value).map(Timestamp::from_micros)
}

fn integer(value: Value) -> Result<u64, StoreError> {
    u64::from_redis_value(value).map_err(|error| corrupt(&error))
}

fn corrupt(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::new(StoreFault::Corrupt, error)
}

fn fault(error: &RedisError) -> StoreError {
    use redis::ErrorKind::{Extension, Server, UnexpectedReturnType};
    let kind = match error.kind() {
        UnexpectedReturnType => StoreFault::Corrupt,
        Server(_) | Extension if error.code() == Some("WRONGTYPE") => StoreFault::Corrupt,
        // OOM, READONLY, NOREPLICAS, MISCONF, LOADING, BUSY and the like: the server answered, and did nothing.
        Server(_) | Extension => StoreFault::Refused,
        // A broken connection, or one whose replies make no sense any more.
        _ => StoreFault::Unreachable,
    };
    StoreError::new(kind, error)
}
