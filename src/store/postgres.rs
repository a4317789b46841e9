//! Records in PostgreSQL (14 or newer): one table, changed by one statement in one round trip.

mod fault;
mod keeper;
mod listing;
mod pool;
mod row;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, PgConnection, Row as _};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::event::ScopeKey;
use crate::idempotency::{Draft, Expect};

use super::sql::PATIENCE;
use super::{Entry, Facts, Filter, Found, Listed, Meta, OpenError, Role, Seen, Store, StoreError, StoreFault, Swap};
use fault::Verdict;
use keeper::{Purpose, SCHEMA_VERSION, Schema};
use pool::Pool;

const PING: &str =
    "INSERT INTO idempotency_ping (at) VALUES (onceward_now()) ON CONFLICT (only_one) DO UPDATE SET at = EXCLUDED.at";

/// Empty when another one made it a moment ago: then this statement does not see it yet.
const META: &str = "WITH made AS (INSERT INTO idempotency_meta (epoch, digest_key) VALUES ($1, $2) \
    ON CONFLICT DO NOTHING RETURNING epoch, digest_key) \
    SELECT epoch, digest_key, true AS made FROM made UNION ALL SELECT epoch, digest_key, false FROM idempotency_meta";

const FACTS: &str = "SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS follows, \
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text AS instance";

/// What an address may say beside the place. Others would be ignored, and their values logged.
const PARAMETERS: [&str; 6] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "options"];

/// A handle on a database, to be shared by all runtimes.
///
/// Its connections live on a thread and runtime of their own: a server has room for some hundred, so they are counted once a
/// gateway, not once a core, and a core's end takes none of them along. Beside a round trip that waits for a disk, the hop costs
/// nothing.
pub struct Postgres {
    calls: Arc<Calls>,
    timeout: Duration,
    runtime: Handle,
    /// Its end is the runtime's end.
    _life: oneshot::Sender<()>,
}

/// What a call needs on the store's own runtime.
struct Calls {
    pool: Arc<Pool>,
    schema: watch::Receiver<Schema>,
}

/// A call's statements over one connection.
type Statements<'c, T> = BoxFuture<'c, Result<T, sqlx::Error>>;

impl Postgres {
    /// A store at a `postgres://` address, to serve from: makes its tables when it first reaches the database, and clears away
    /// what has expired. A database that is down now may come later. `timeout` is the longest that one call may take, connecting
    /// included.
    ///
    /// # Errors
    /// [`OpenError`]: the address cannot be used, or the tables are of a later version.
    pub async fn open(url: &str, timeout: Duration) -> Result<Self, OpenError> {
        Self::start(url, timeout, Purpose::Serve).await
    }

    /// A store to look into: makes no tables and clears nothing away.
    ///
    /// # Errors
    /// See [`Postgres::open`].
    pub async fn look(url: &str, timeout: Duration) -> Result<Self, OpenError> {
        Self::start(url, timeout, Purpose::Look).await
    }

    async fn start(url: &str, timeout: Duration, purpose: Purpose) -> Result<Self, OpenError> {
        let options = options(url, timeout)?;
        let place = format!("the database `{}` on {}", options.get_database().unwrap_or_default(), options.get_host());
        let failed = |error: std::io::Error| OpenError::File { path: place.clone(), detail: error.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (handle, (life, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let thread = std::thread::Builder::new().name("onceward-postgres".to_owned());
        // Not waited for in the end: what is not answered by then is in doubt, as after a crash.
        let thread = thread.spawn(move || {
            drop(runtime.block_on(ended));
            runtime.shutdown_background();
        });
        thread.map_err(failed)?;
        let (told, schema) = watch::channel(Schema::Unknown);
        let pool = Arc::new(Pool::new(options));
        handle.spawn(keeper::keep(pool.clone(), told, purpose));
        let store = Self { calls: Arc::new(Calls { pool, schema }), timeout, runtime: handle, _life: life };
        let mut schema = store.calls.schema.clone();
        // Waiting longer would not make it a fault.
        let first = tokio::time::timeout(timeout, schema.wait_for(|schema| *schema != Schema::Unknown)).await;
        match first.ok().and_then(Result::ok).as_deref() {
            Some(Schema::Newer(found)) => Err(OpenError::Newer { path: place, found: *found, known: SCHEMA_VERSION }),
            _ => Ok(store),
        }
    }

    /// One call on the store's own runtime, with its deadline. Its work is repeated when the server asks for that.
    async fn call<T: Send + 'static>(
        &self,
        within: Duration,
        work: impl for<'c> Fn(&'c mut PgConnection) -> Statements<'c, T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let (calls, deadline) = (self.calls.clone(), Instant::now() + within);
        let call = self.runtime.spawn(async move { calls.call(deadline, work).await });
        call.await.unwrap_or_else(|ended| Err(StoreError::new(StoreFault::Unreachable, ended)))
    }
}

impl Calls {
    async fn call<T>(
        &self,
        deadline: Instant,
        work: impl for<'c> Fn(&'c mut PgConnection) -> Statements<'c, T>,
    ) -> Result<T, StoreError> {
        self.ready(deadline).await?;
        loop {
            let mut place = self.pool.place(deadline).await?;
            let Ok(result) = timeout_at(deadline, work(&mut place.connection)).await else {
                return Err(StoreError::new(StoreFault::Timeout, "no answer in time"));
            };
            match &result {
                Err(error) if fault::verdict(error) == Verdict::Again && Instant::now() < deadline => {
                    place.settle(&result);
                }
                _ => return keeper::conclude(place, result),
            }
        }
    }

    /// Waits until the tables are known to be there.
    async fn ready(&self, deadline: Instant) -> Result<(), StoreError> {
        let mut schema = self.schema.clone();
        let known = timeout_at(deadline, schema.wait_for(|schema| *schema != Schema::Unknown)).await;
        let error = match known.ok().and_then(Result::ok).as_deref() {
            Some(Schema::Ready) => return Ok(()),
            Some(Schema::Failed(kind, detail)) => StoreError::new(*kind, detail),
            Some(Schema::Newer(found)) => StoreError::new(
                StoreFault::Refused,
                format_args!(
                    "its schema is {found}, and this version knows {SCHEMA_VERSION}; run the version that made it"
                ),
            ),
            Some(Schema::Unknown) | None => StoreError::new(StoreFault::Unreachable, "not connected in time"),
        };
        Err(error.not_applied())
    }
}

#[async_trait]
impl Store for Postgres {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let asked = (key.clone(), draft.clone());
        let row = self
            .call(self.timeout, move |connection| row::swap(&asked.0, expect, &asked.1).fetch_one(connection).boxed());
        row::swapped(&row.await?, key, draft)
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        let asked = key.clone();
        let row = self.call(self.timeout, move |connection| {
            row::bind_key(sqlx::query(row::PEEK), &asked).fetch_one(connection).boxed()
        });
        row::seen(&row.await?, key)
    }

    /// A write, since a server that follows another one answers everything else.
    async fn ping(&self) -> Result<(), StoreError> {
        self.call(self.timeout, |connection| sqlx::query(PING).execute(connection).boxed()).await.map(|_| ())
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        let row = self.call(self.timeout, move |connection| {
            let offer = offer.clone();
            async move {
                loop {
                    let query = sqlx::query(META).bind(&offer.epoch).bind(offer.digest_key.as_slice());
                    if let Some(row) = query.fetch_optional(&mut *connection).await? {
                        return Ok(row);
                    }
                }
            }
            .boxed()
        });
        let row = row.await?;
        let length =
            |key: Vec<u8>| StoreError::new(StoreFault::Corrupt, format_args!("a digest key of {} octets", key.len()));
        let digest_key = read::<Vec<u8>>(&row, "digest_key")?.try_into().map_err(length)?;
        Ok(Found { meta: Meta { epoch: read(&row, "epoch")?, digest_key }, made: read(&row, "made")? })
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        let asked = (tenant.to_owned(), filter.clone());
        let rows = self.call(PATIENCE, move |connection| {
            let (tenant, filter) = asked.clone();
            async move { listing::list(connection, &tenant, &filter).await }.boxed()
        });
        listing::listed(&rows.await?, filter)
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        let asked = [tenant, scope, readable_key].map(str::to_owned);
        let rows = self.call(PATIENCE, move |connection| {
            let [tenant, scope, readable_key] = asked.clone();
            async move { listing::find(connection, [&tenant, &scope], &readable_key).await }.boxed()
        });
        rows.await?.iter().map(listing::entry).collect()
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        let row = self.call(self.timeout, |connection| sqlx::query(FACTS).fetch_one(connection).boxed()).await?;
        let role = if read(&row, "follows")? { Role::Replica } else { Role::Primary };
        let (version, instance) = (read(&row, "version")?, read(&row, "instance")?);
        Ok(Facts { software: "postgresql", version, instance, role, eviction: None })
    }
}
fn read<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(name).map_err(|error| StoreError::new(StoreFault::Corrupt, error))
}

/// Reads an address, and sets what every connection keeps to.
fn options(url: &str, timeout: Duration) -> Result<PgConnectOptions, OpenError> {
    let named = url.split_once('?').map_or("", |(_, query)| query).split('&').filter(|pair| !pair.is_empty());
    let mut names = named.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    if let Some(name) = names.find(|name| !PARAMETERS.contains(name)) {
        let known = PARAMETERS.join(", ");
        return Err(OpenError::Address(format!("`{name}` is not one of its parameters: {known}")));
    }
    let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| OpenError::Address(error.to_string()))?;
    // The server gives up first. What it says then is certain, unlike a deadline of ours.
    let limit = format!("{}ms", (timeout * 3 / 4).as_millis().max(1));
    let named = options.get_application_name().is_some();
    let options = if named { options } else { options.application_name("onceward") };
    Ok(options
        .options([
            ("statement_timeout", limit.as_str()),
            ("lock_timeout", limit.as_str()),
            // Each statement sees what was committed before it: the conditional write builds on that.
            ("default_transaction_isolation", "read committed"),
        ])
        .disable_statement_logging())
}
