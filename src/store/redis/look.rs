//! What people ask a Redis: listings, a key in any namespace, and what the server says of itself. None of it is on the data path.

use std::time::Duration;

use redis::{FromRedisValue, Value, cmd};
use tokio::time::{Instant, timeout};

use crate::event::{KeyKind, ScopeKey, Timestamp};
use crate::idempotency::Fence;
use crate::store::codec::{self, notes};
use crate::store::{Entry, Facts, Filter, Listed, Role, StoreError, StoreFault};

use super::names::{NAME, Names};
use super::script::is_open;
use super::{Call, Redis, corrupt, time};

/// The most records that one listing looks at.
const LOOKED_AT_MAX: usize = 20_000;

/// How long a listing may go on: a server is not to be kept busy by a look.
const LOOK_FOR: Duration = Duration::from_secs(2);

/// Names that one SCAN step walks over.
const SCAN_STEP: usize = 1000;

impl Redis {
    /// In a cluster: a record's place in its tenant's index, and its namespace, on whatever nodes they live. The index is for
    /// people: what is lost of it here comes back with the record's next renewal.
    pub(super) async fn index_beside(&self, key: &ScopeKey, record: &str, open: bool, fence: Fence) {
        let mut place = cmd(if open { "ZADD" } else { "ZREM" });
        place.arg(Names::index(&key.tenant));
        if open {
            // No order: a listing makes its own.
            place.arg(0);
        }
        place.arg(record);
        let mut namespace = cmd("SADD");
        namespace.arg(Names::namespaces(&key.tenant, &key.scope)).arg(&key.namespace);
        let mut written = self.bounded(&Call::Command(&place)).await;
        if matches!(fence, Fence::Next { .. }) && !key.namespace.is_empty() {
            written = written.and(self.bounded(&Call::Command(&namespace)).await);
        }
        if let Err(error) = written {
            tracing::debug!(%error, "a record's place in the index could not be written");
        }
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        let told = self.bounded(&Call::Command(&cmd("TIME"))).await?;
        let (seconds, micros): (u64, u64) = FromRedisValue::from_redis_value(told).map_err(|error| corrupt(&error))?;
        Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
    }

    /// A record by its name in Redis.
    async fn by_name(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        let (now, fields): (Value, Value) = self.run(&self.peek, &[name], &[]).await?;
        let now = time(now)?;
        let fields = Vec::<(Vec<u8>, Vec<u8>)>::from_redis_value(fields).map_err(|error| corrupt(&error))?;
        if fields.is_empty() {
            return Ok(None);
        }
        let mut row = codec::Row::default();
        let mut key = None;
        for (field, value) in fields {
            if field == NAME.as_bytes() {
                key = std::str::from_utf8(&value).ok().and_then(notes::parse_key);
            } else {
                row.insert(&field, value);
            }
        }
        let record = row.decode()?;
        let key = key.ok_or_else(|| StoreError::new(StoreFault::Corrupt, "the record does not say what its key is"))?;
        Ok(Some(Entry { key, record }).filter(|entry| entry.record.expires_at > now))
    }

    /// The names in a tenant's index, the lease that ends last first.
    async fn indexed(&self, tenant: &str) -> Result<Vec<String>, StoreError> {
        let mut range = cmd("ZRANGE");
        range.arg(Names::index(tenant)).arg(0).arg(LOOKED_AT_MAX).arg("REV");
        let names = self.bounded(&Call::Command(&range)).await?;
        FromRedisValue::from_redis_value(names).map_err(|error| corrupt(&error))
    }

    /// The names of all of a tenant's records; false when there may be more.
    async fn scanned(&self, tenant: &str) -> Result<(Vec<String>, bool), StoreError> {
        let pattern = self.names().of_tenant(tenant);
        let end = Instant::now() + LOOK_FOR;
        let mut names = Vec::new();
        for node in self.nodes().await? {
            let mut cursor = 0_u64;
            loop {
                let mut scan = cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_STEP);
                let step = self.bounded(&Call::At(&node, &scan)).await?;
                let (next, found): (u64, Vec<String>) =
                    FromRedisValue::from_redis_value(step).map_err(|error| corrupt(&error))?;
                names.extend(found);
                cursor = next;
                if cursor == 0 {
                    break;
                }
                if names.len() >= LOOKED_AT_MAX || Instant::now() > end {
                    return Ok((names, false));
                }
            }
        }
        Ok((names, true))
    }

    /// The nodes that hold keys of their own.
    async fn nodes(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.info().await?.into_iter().map(|(node, _)| node).collect())
    }

    /// What each node says of itself.
    async fn info(&self) -> Result<Vec<(String, String)>, StoreError> {
        let deadline = self.timeout;
        let connection = timeout(deadline, self.link.connection()).await;
        let late = || StoreError::new(StoreFault::Timeout, format_args!("no reply within {deadline:?}"));
        let mut connection = connection.map_err(|_| late())??;
        let answers = timeout(deadline, connection.commands.everywhere(&cmd("INFO"))).await.map_err(|_| late())?;
        let answers = answers.map_err(|error| super::fault(&error))?;
        answers
            .into_iter()
            .map(|(node, text)| Ok((node, String::from_redis_value(text).map_err(|error| corrupt(&error))?)))
            .collect()
    }
}

pub(super) async fn list(redis: &Redis, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
    let now = redis.clock().await?;
    let indexed = filter.statuses.iter().all(|status| is_open(*status));
    let (names, whole) = if indexed {
        let names = redis.indexed(tenant).await?;
        let whole = names.len() <= LOOKED_AT_MAX;
        (names, whole)
    } else {
        redis.scanned(tenant).await?
    };
    let end = Instant::now() + LOOK_FOR;
    let mut entries = Vec::new();
    let mut more = !whole;
    for name in names {
        if Instant::now() > end {
            more = true;
            break;
        }
        match redis.by_name(&name).await {
            Ok(Some(entry)) if !filter.holds(&entry.record) => {}
            Ok(Some(entry)) => entries.push(entry),
            // Expired: its place in the index outlived it.
            Ok(None) if indexed => redis.forget(tenant, &name).await?,
            Ok(None) => {}
            Err(error) if error.kind == StoreFault::Corrupt => {
                tracing::error!(name, %error, "a record cannot be read; it is left out of the list");
            }
            Err(error) => return Err(error),
        }
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.record.started_at));
    more |= entries.len() > filter.limit;
    entries.truncate(filter.limit);
    Ok(Listed { entries, more, now })
}

impl Redis {
    async fn forget(&self, tenant: &str, name: &str) -> Result<(), StoreError> {
        let mut remove = cmd("ZREM");
        remove.arg(Names::index(tenant)).arg(name);
        self.bounded(&Call::Command(&remove)).await.map(|_| ())
    }
}

pub(super) async fn find(redis: &Redis, tenant: &str, scope: &str, readable: &str) -> Result<Vec<Entry>, StoreError> {
    let mut members = cmd("SMEMBERS");
    members.arg(Names::namespaces(tenant, scope));
    let told = redis.bounded(&Call::Command(&members)).await?;
    let namespaces: Vec<String> = FromRedisValue::from_redis_value(told).map_err(|error| corrupt(&error))?;
    let mut found = Vec::new();
    for namespace in std::iter::once("").chain(namespaces.iter().map(String::as_str)) {
        let name = redis.names().readable(tenant, scope, namespace, readable);
        let entry = redis.by_name(&name).await?;
        // A digest names keys of every kind.
        found.extend(entry.filter(|entry| matches!(entry.key.kind, KeyKind::Key | KeyKind::Body)));
    }
    Ok(found)
}

pub(super) async fn facts(redis: &Redis) -> Result<Facts, StoreError> {
    let told = redis.info().await?;
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    };
    let all = |name: &str| told.iter().filter_map(|(_, text)| value(text, name)).collect::<Vec<_>>();
    let mut instances = all("run_id");
    instances.sort();
    let replica = all("role").iter().any(|role| role != "master");
    // Of several nodes the one that would lose something decides.
    let policies = all("maxmemory_policy");
    let eviction = policies.iter().find(|policy| *policy != "noeviction").or(policies.first()).cloned();
    let versions = all("redis_version");
    let oldest = versions.iter().min_by_key(|version| numbers(version));
    Ok(Facts {
        software: "redis",
        version: oldest.cloned().unwrap_or_default(),
        instance: instances.join(","),
        role: if replica { Role::Replica } else { Role::Primary },
        eviction,
    })
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or_default()).collect()
}
