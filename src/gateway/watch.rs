//! What a gateway keeps an eye on in its store: that it is one to rely on, that it has forgotten nothing, and what claims their
//! owners left behind.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::idempotency::record::Status;
use crate::store::{Facts, Filter, Role, Store, StoreError};

use super::audit;
use super::epochs::Epochs;
use super::keyring::Keyring;
use super::route::Routes;

/// How often the store's own record is looked at. A newcomer that comes after a flush and before that makes a record of its own, so
/// the time is short.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How many looks pass between two questions about the store's settings, while all is well.
const FACTS_EVERY: u32 = 12;

/// How many looks pass between two searches for orphans.
const ORPHANS_EVERY: u32 = 3;

/// The most claims of one tenant that are read in a search.
const ORPHANS_MAX: usize = 1000;

/// The oldest servers that are good enough, by their major version.
const REDIS_MIN: u32 = 7;
const POSTGRESQL_MIN: u32 = 12;

/// What speaks against this gateway's readiness, or at least against its promise. Cheap to clone.
#[derive(Clone, Default)]
pub struct Standing(Arc<ArcSwap<Reasons>>);

/// The reasons, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// Why it should get no traffic.
    pub unready: Vec<String>,
    /// Why its promise does not hold as it should, although it serves.
    pub degraded: Vec<String>,
}

impl Standing {
    /// As they are now.
    pub fn reasons(&self) -> Arc<Reasons> {
        self.0.load_full()
    }
}

/// A store that must not be relied on. The text says which setting to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store is not one to rely on: {0}")]
pub struct Unfit(String);

/// What is wrong with a store's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Concern {
    /// It drops records when memory runs out.
    Evicts(String),
    /// It is too old to do what is asked of it.
    Old(String),
    /// It takes no writes.
    Replica,
}

/// The watch of one process.
pub struct Watch {
    store: Arc<dyn Store>,
    keyring: Keyring,
    epochs: Epochs,
    routes: Arc<Routes>,
    standing: Standing,
    /// As last asked; none: not answered yet.
    concerns: Option<Vec<Concern>>,
    reset_at: Option<Instant>,
}

impl Watch {
    /// Over a handle of the runtime that the watch runs on.
    pub fn new(store: Arc<dyn Store>, keyring: Keyring, epochs: Epochs, routes: Arc<Routes>) -> Self {
        Self { store, keyring, epochs, routes, standing: Standing::default(), concerns: None, reset_at: None }
    }

    /// Where the watch says what it found.
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// The first look, before anything is served. A store that does not answer is no reason not to start: it may come.
    ///
    /// # Errors
    /// [`Unfit`] when it answers and must not be used.
    pub async fn first(&mut self) -> Result<(), Unfit> {
        self.ask().await;
        for concern in self.concerns.iter().flatten() {
            match concern {
                Concern::Evicts(_) | Concern::Old(_) => return Err(Unfit(concern.to_string())),
                Concern::Replica => {}
            }
        }
        self.look().await;
        self.say();
        Ok(())
    }

    /// Goes on looking. Never ends.
    pub async fn run(mut self) {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn: u32 = 0;
        loop {
            tick.tick().await;
            self.look().await;
            // While something is wrong, its end is worth knowing soon.
            if turn.is_multiple_of(FACTS_EVERY) || self.concerns.as_ref().is_none_or(|concerns| !concerns.is_empty()) {
                self.ask().await;
            }
            if turn.is_multiple_of(ORPHANS_EVERY) {
                self.search().await;
            }
            self.say();
            turn = turn.wrapping_add(1);
        }
    }

    /// Whether the store has forgotten everything since it was last looked at.
    async fn look(&mut self) {
        match self.keyring.look(&*self.store).await {
            Ok(epoch) => {
                if let Some(before) = self.epochs.seen(&epoch) {
                    audit::window_reset(&before, &epoch);
                    self.reset_at = Some(Instant::now());
                }
            }
            Err(error) => tracing::debug!(%error, "the store's record could not be looked at"),
        }
    }

    async fn ask(&mut self) {
        match self.store.facts().await {
            Ok(facts) => {
                let concerns = judge(&facts);
                let before = self.concerns.replace(concerns.clone());
                for new in concerns.iter().filter(|concern| !before.iter().flatten().any(|known| known == *concern)) {
                    tracing::error!(instance = facts.instance, "{new}");
                }
            }
            Err(error) => tracing::debug!(%error, "the store did not say what it is"),
        }
    }

    /// Says how many claims stand whose leases are over, by route. Another gateway over the same store says the same.
    async fn search(&self) {
        let tenants: BTreeSet<&str> = self.routes.all().iter().map(|route| route.config.tenant.as_str()).collect();
        for tenant in tenants {
            match self.orphans(tenant).await {
                Ok(orphans) => {
                    for route in self.routes.all().iter().filter(|route| route.config.tenant == tenant) {
                        let (count, oldest) = orphans.get(&route.config.name).copied().unwrap_or_default();
                        route.meters.orphans(count, oldest);
                    }
                }
                Err(error) => tracing::debug!(%error, tenant, "orphans could not be looked for"),
            }
        }
    }

    /// By route: how many, and the age of the oldest.
    async fn orphans(&self, tenant: &str) -> Result<HashMap<String, (usize, Duration)>, StoreError> {
        let filter = Filter { statuses: vec![Status::Processing], route: None, since: None, limit: ORPHANS_MAX };
        let listed = self.store.list(tenant, &filter).await?;
        let mut found: HashMap<String, (usize, Duration)> = HashMap::new();
        for entry in listed.entries.iter().filter(|entry| entry.record.lease_until <= listed.now) {
            let (count, oldest) = found.entry(entry.record.route.clone()).or_default();
            *count += 1;
            *oldest = (*oldest).max(listed.now.since(entry.record.started_at));
        }
        Ok(found)
    }

    fn say(&mut self) {
        let mut reasons = Reasons::default();
        for concern in self.concerns.iter().flatten() {
            match concern {
                Concern::Evicts(_) => reasons.degraded.push(concern.to_string()),
                Concern::Replica | Concern::Old(_) => reasons.unready.push(concern.to_string()),
            }
        }
        let longest = self.routes.all().iter().map(|route| route.config.policy.window).max().unwrap_or_default();
        // After that, nothing that was lost would be remembered anyway.
        self.reset_at = self.reset_at.filter(|since| since.elapsed() < longest);
        if self.reset_at.is_some() {
            reasons.degraded.push(
                "the store was emptied: events from before are first-seen again until their windows would have ended"
                    .to_owned(),
            );
        }
        self.standing.0.store(Arc::new(reasons));
    }
}

/// What speaks against a store.
fn judge(facts: &Facts) -> Vec<Concern> {
    let mut concerns = Vec::new();
    let oldest = match facts.software {
        "redis" => Some(REDIS_MIN),
        "postgresql" => Some(POSTGRESQL_MIN),
        _ => None,
    };
    let major = facts.version.split(|c: char| !c.is_ascii_digit()).next().and_then(|word| word.parse::<u32>().ok());
    if let (Some(oldest), Some(major)) = (oldest, major)
        && major < oldest
    {
        concerns.push(Concern::Old(format!("{} {} is too old: run {oldest} or newer", facts.software, facts.version)));
    }
    if let Some(policy) = facts.eviction.as_deref().filter(|policy| *policy != "noeviction") {
        concerns.push(Concern::Evicts(policy.to_owned()));
    }
    if facts.role == Role::Replica {
        concerns.push(Concern::Replica);
    }
    concerns
}

impl std::fmt::Display for Concern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Evicts(policy) => write!(
                f,
                "maxmemory-policy is {policy}, under which claims and kept answers are dropped when memory runs out: \
                 set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
            ),
            Self::Old(text) => f.write_str(text),
            Self::Replica => {
                f.write_str("the store is a replica, which takes no writes: name its primary in store.url")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(software: &'static str, version: &str, eviction: Option<&str>, role: Role) -> Facts {
        let eviction = eviction.map(str::to_owned);
        Facts { software, version: version.to_owned(), instance: "i".to_owned(), role, eviction }
    }

    #[test]
    fn what_a_store_must_be() {
        let primary = Role::Primary;
        for fine in [
            facts("redis", "7.0.15", Some("noeviction"), primary),
            facts("redis", "8.2", Some("noeviction"), primary),
            facts("postgresql", "15.6 (Debian)", None, primary),
            facts("sqlite", "3.46.0", None, primary),
            facts("memory", "", None, primary),
        ] {
            assert_eq!(judge(&fine), [], "{fine:?}");
        }
        let evicts = judge(&facts("redis", "7.2.0", Some("allkeys-lru"), primary));
        assert_eq!(evicts, [Concern::Evicts("allkeys-lru".to_owned())]);
        assert!(matches!(&judge(&facts("redis", "6.2.14", Some("noeviction"), primary))[..], [Concern::Old(_)]));
        assert!(matches!(&judge(&facts("postgresql", "11.22", None, primary))[..], [Concern::Old(_)]));
        assert_eq!(judge(&facts("redis", "7.0.0", Some("noeviction"), Role::Replica)), [Concern::Replica]);
    }
}
