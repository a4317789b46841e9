//! Records in Redis (7 or newer): a hash a key, changed by one script in one round trip.

mod link;

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, FromRedisValue, RedisError, ServerErrorKind, Value, cmd};

use crate::event::{ScopeKey, Timestamp};
use crate::idempotency::{Draft, Expect, Fence, Lease, Record, State, Ttl};

use super::codec::{self, COLUMNS};
use super::{Entry, Facts, Filter, Found, Listed, Meta, Seen, Store, StoreError, StoreFault, Swap};
use link::{Connection, Link};

const SWAP: &str = include_str!("redis/swap.lua");
const PEEK: &str = include_str!("redis/peek.lua");
const META: &str = include_str!("redis/meta.lua");

const META_KEY: &str = "onceward:meta";
const PING_KEY: &str = "onceward:ping";
const PING_TTL_MS: u64 = 1000;

/// The longest lease or life, 100 years: later moments would no longer be exact in the doubles that Lua computes with.
const SPAN_MAX: Duration = Duration::from_hours(24 * 365 * 100);

/// A handle on a Redis server: one connection, for one runtime. Make one a core.
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
}

impl Redis {
    /// A handle for a `redis://` or `rediss://` address. Connects when first used, so a server that is down now may come later.
    /// `timeout` is the longest that one call may take, connecting included.
    ///
    /// # Errors
    /// When the address cannot be read. Its text is not repeated, since it may hold a password.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        Ok(Self::over(Link::new(url)?, timeout))
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
        }
    }

    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        key: &str,
        args: &[Cow<'_, [u8]>],
    ) -> Result<T, StoreError> {
        let reply = self
            .bounded(async |mut connection: Connection| {
                match script.by_hash(key, args).query_async(&mut connection.commands).await {
                    // After a restart, a failover or SCRIPT FLUSH. EVAL, not a reload first: another flush could come between.
                    Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                        script.by_source(key, args).query_async(&mut connection.commands).await
                    }
                    reply => reply,
                }
            })
            .await?;
        T::from_redis_value(reply).map_err(|error| corrupt(&error))
    }

    /// One call on the connection, within the deadline.
    async fn bounded(
        &self,
        call: impl AsyncFnOnce(Connection) -> Result<Value, RedisError>,
    ) -> Result<Value, StoreError> {
        let deadline = tokio::time::Instant::now() + self.timeout;
        let connection = match tokio::time::timeout_at(deadline, self.link.connection()).await {
            Ok(connection) => connection?,
            Err(_) => return Err(StoreError::new(StoreFault::Unreachable, "no connection in time").not_applied()),
        };
        match tokio::time::timeout_at(deadline, call(connection.clone())).await {
            Ok(Ok(reply)) => {
                self.link.succeeded();
                Ok(reply)
            }
            Ok(Err(error)) => {
                let fault = fault(&error);
                // A master that was demoted keeps its connections and refuses every write: look for the new one.
                if fault.kind == StoreFault::Unreachable || error.kind() == ServerErrorKind::ReadOnly.into() {
                    self.link.retire(&connection);
                }
                Err(fault)
            }
            Err(_) => {
                // Its reply may still come. Nobody else shall wait behind it, or ever read it as theirs.
                self.link.retire(&connection);
                Err(StoreError::new(StoreFault::Timeout, format_args!("no reply within {:?}", self.timeout)))
            }
        }
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
        let reply: Vec<Value> = self.run(script, &record_key(key), &swap_args(expect, draft, &content)).await?;
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
        let (now, fields): (Value, Value) = self.run(&self.peek, &record_key(key), &[]).await?;
        seen(now, fields)
    }

    /// A write, since a full or demoted server answers everything else.
    async fn ping(&self) -> Result<(), StoreError> {
        self.bounded(async |mut connection: Connection| {
            let mut set = cmd("SET");
            set.arg(PING_KEY).arg(1).arg("PX").arg(PING_TTL_MS);
            set.query_async(&mut connection.commands).await
        })
        .await
        .map(|_| ())
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        let digest_key = hex::encode(offer.digest_key);
        let args = [Cow::Borrowed(offer.epoch.as_bytes()), Cow::Borrowed(digest_key.as_bytes())];
        let (made, epoch, digest_key): (bool, Option<String>, Option<String>) =
            self.run(&self.meta, META_KEY, &args).await?;
        let digest_key = digest_key.and_then(|text| hex::decode(text).ok()?.try_into().ok());
        match (epoch, digest_key) {
            (Some(epoch), Some(digest_key)) => Ok(Found { meta: Meta { epoch, digest_key }, made }),
            _ => Err(corrupt(&format_args!("`{META_KEY}` is not the store's meta record"))),
        }
    }

    async fn list(&self, _tenant: &str, _filter: &Filter) -> Result<Listed, StoreError> {
        Err(StoreError::new(StoreFault::Refused, "LATER"))
    }

    async fn find(&self, _tenant: &str, _scope: &str, _readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        Err(StoreError::new(StoreFault::Refused, "LATER"))
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        Err(StoreError::new(StoreFault::Refused, "LATER"))
    }
}

/// A script and its name on the server.
struct Script {
    source: String,
    hash: String,
}

impl Script {
    fn new(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    fn by_hash(&self, key: &str, args: &[Cow<'_, [u8]>]) -> Cmd {
        command("EVALSHA", &self.hash, key, args)
    }

    fn by_source(&self, key: &str, args: &[Cow<'_, [u8]>]) -> Cmd {
        command("EVAL", &self.source, key, args)
    }
}

fn command(verb: &str, script: &str, key: &str, args: &[Cow<'_, [u8]>]) -> Cmd {
    let mut command = cmd(verb);
    command.arg(script).arg(1).arg(key);
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

/// The name of a record in Redis: readable where that is unique. Tenants and scopes hold no separator, but a namespace is the
/// plugin's own word.
fn record_key(key: &ScopeKey) -> String {
    let plain = |part: &String| !part.contains([':', '@']);
    if plain(&key.tenant) && plain(&key.scope) && plain(&key.namespace) {
        format!("onceward:rec:{}", key.readable())
    } else {
        format!("onceward:rec:sha256-{}", hex::encode(key.digest()))
    }
}

/// The arguments of `swap.lua`, in its order.
fn swap_args<'a>(expect: Expect, draft: &Draft, content: &'a codec::Columns) -> Vec<Cow<'a, [u8]>> {
    let (lease, fence, status) = match expect {
        Expect::Absent => ("absent", String::new(), ""),
        Expect::At { revision, lease } => {
            let lease = match lease {
                Lease::Live => "live",
                Lease::Over => "over",
                Lease::Any => "any",
            };
            (lease, revision.fence.to_string(), revision.status.as_str())
        }
    };
    let floor = match draft.fence {
        Fence::Next { floor } => floor.to_string(),
        Fence::Keep => String::new(),
    };
    let (ttl, least) = match draft.ttl {
        Ttl::AtLeast(ttl) => (ttl, "1"),
        Ttl::Exactly(ttl) => (ttl, "0"),
    };
    let ends = if draft.state == State::Processing { "0" } else { "1" };
    let stale = COLUMNS.iter().filter(|name| !STAMPED.contains(name) && content.iter().all(|(set, _)| set != *name));
    let stale = stale.collect::<Vec<_>>();

    let mut args = Vec::with_capacity(64);
    args.push(borrowed(lease));
    args.push(owned(fence));
    args.push(borrowed(status));
    args.push(owned(floor));
    args.push(owned(draft.lease.map_or_else(String::new, micros)));
    args.push(owned(micros(ttl)));
    args.push(borrowed(least));
    args.push(borrowed(ends));
    args.push(owned(stale.len().to_string()));
    args.extend(stale.into_iter().map(|name| borrowed(name)));
    for (name, cell) in content {
        args.extend([borrowed(name), Cow::Borrowed(cell.as_bytes())]);
    }
    args
}

/// What the script writes or clears by its own clock.
const STAMPED: [&str; 5] = ["fence", "started_at", "finished_at", "lease_until", "expires_at"];

fn borrowed(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
}

fn owned(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
}

fn micros(span: Duration) -> String {
    span.min(SPAN_MAX).as_micros().to_string()
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
