//! What senders and tenants may use, and how much of it is left. Shared by all cores of a process; counters only.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{interval, timeout};

use crate::config::model::{self, Rate, Server, Tenant, TimeShare};
use crate::plugin::LogLine;
use crate::plugin::aside::Line;

use super::meters::{Words, counter};
use super::plugin_time::{PluginTime, Spent};
use super::rejection::Rejection;

/// How often addresses that came long ago are forgotten, so that the table holds only those of late.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// How long a request of a tenant whose requests are all in work waits for one of them to end: a burst that is soon over is served,
/// and what lasts is told to come again.
const BURST: Duration = Duration::from_millis(100);

/// How many wait so, for each that may be in work.
const WAITING_PER_WORKING: usize = 4;

/// Lines that a tenant's plugins may write into the program's log. More are cut and counted.
const LOG_LINES: Rate = Rate { count: 100, per: Duration::from_secs(1) };

/// The limits of one process.
#[derive(Clone)]
pub struct Rates(Arc<Tables>);

struct Tables {
    addresses: DefaultKeyedRateLimiter<IpAddr>,
    tenants: HashMap<String, Arc<Share>>,
    /// Of tenants that no configuration names, which no route has.
    other: Arc<Share>,
}

impl Rates {
    /// As configured.
    pub fn new(server: &Server, tenants: &BTreeMap<String, Arc<Tenant>>) -> Self {
        let began = Instant::now();
        let share = |name: &str, limits: &model::Limits| Arc::new(Share::new(name, limits, began));
        Self(Arc::new(Tables {
            addresses: RateLimiter::keyed(quota(server.per_address.rate)),
            tenants: tenants.iter().map(|(name, tenant)| (name.clone(), share(name, &tenant.limits))).collect(),
            other: share("", &model::Limits::DEFAULT),
        }))
    }

    /// One request from an address, counted before anything is verified.
    ///
    /// # Errors
    /// [`Rejection::RateLimited`] with the time after which one more is accepted.
    pub fn request(&self, from: IpAddr) -> Result<(), Rejection> {
        let wait = |until: governor::NotUntil<_>| until.wait_time_from(DefaultClock::default().now());
        self.0.addresses.check_key(&from).map_err(|until| Rejection::RateLimited { after: wait(until) })
    }

    /// What a tenant may use.
    pub fn of(&self, tenant: &str) -> &Arc<Share> {
        self.0.tenants.get(tenant).unwrap_or(&self.0.other)
    }

    /// Forgets addresses that could come as often as they like again. Never ends.
    pub async fn forget(&self) {
        let mut tick = interval(FORGET_EVERY);
        loop {
            tick.tick().await;
            self.0.addresses.retain_recent();
            self.0.addresses.shrink_to_fit();
        }
    }
}

/// What one tenant may use, and what of it is left.
pub struct Share {
    /// Its plugin calls that take long.
    pub line: Arc<Line>,
    limits: model::Limits,
    began: Instant,
    rate: DefaultDirectRateLimiter,
    working: Arc<Semaphore>,
    waiting: Semaphore,
    plugin_time: PluginTime,
    log_lines: DefaultDirectRateLimiter,
    limited: Words,
    log_dropped: metrics::Counter,
}

/// A limit that a tenant has reached. The text is for the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Its verified events.
    Rate(Rate, Duration),
    /// Its requests in work.
    Concurrency(usize),
    /// The time of its plugins.
    PluginTime(TimeShare, Duration),
    /// What of that an address may use whose deliveries were not genuine of late.
    Stranger(TimeShare, Duration),
}

impl Share {
    fn new(name: &str, limits: &model::Limits, began: Instant) -> Self {
        let labels = [("tenant", name.to_owned())];
        let log_dropped = metrics::counter!("onceward_plugin_log_dropped_total", &labels);
        Self {
            line: Arc::default(),
            limits: *limits,
            began,
            rate: RateLimiter::direct(quota(limits.rate)),
            working: Arc::new(Semaphore::new(limits.concurrency.min(Semaphore::MAX_PERMITS))),
            waiting: Semaphore::new(limits.concurrency.saturating_mul(WAITING_PER_WORKING).min(Semaphore::MAX_PERMITS)),
            plugin_time: PluginTime::new(limits.plugin_time),
            log_lines: RateLimiter::direct(quota(LOG_LINES)),
            limited: Words::new(move |word| counter("onceward_limited_total", &labels, "limit", word)),
            log_dropped,
        }
    }

    /// A place among the tenant's requests in work, perhaps after a moment.
    ///
    /// # Errors
    /// [`Limited::Concurrency`]
    pub async fn begin(&self) -> Result<Place, Limited> {
        if let Ok(permit) = Arc::clone(&self.working).try_acquire_owned() {
            return Ok(Place(Mutex::new(Some(permit))));
        }
        let waited = match self.waiting.try_acquire() {
            Ok(_turn) => timeout(BURST, Arc::clone(&self.working).acquire_owned()).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        waited
            .map(|permit| Place(Mutex::new(Some(permit))))
            .ok_or_else(|| self.reached(Limited::Concurrency(self.limits.concurrency)))
    }

    /// So many verified events. More in one request than the rate lets through at once can never pass: they count as that many.
    ///
    /// # Errors
    /// [`Limited::Rate`]
    pub fn verified(&self, events: usize) -> Result<(), Limited> {
        let rate = self.limits.rate;
        let count = u32::try_from(events).unwrap_or(u32::MAX).clamp(1, rate.count.max(1));
        let after = match self.rate.check_n(NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(until)) => until.wait_time_from(DefaultClock::default().now()),
            Err(_) => rate.per,
        };
        Err(self.reached(Limited::Rate(rate, after)))
    }

    /// Whether the tenant's plugin may look at a delivery from this address.
    ///
    /// # Errors
    /// [`Limited::PluginTime`] and [`Limited::Stranger`]
    pub fn may_call(&self, from: IpAddr) -> Result<(), Limited> {
        let share = self.limits.plugin_time;
        self.plugin_time.allows(from, self.began.elapsed()).map_err(|spent| {
            self.reached(match spent {
                Spent::Tenant { after } => Limited::PluginTime(share, after),
                Spent::Address { after } => Limited::Stranger(share, after),
            })
        })
    }

    /// A call may take so long.
    pub fn reserve(&self, from: IpAddr, time: Duration) {
        self.plugin_time.reserve(from, time, self.began.elapsed());
    }

    /// A call took so long, of which so much was reserved. `genuine`: as far as the route can tell, it is the sender's own.
    pub fn called(&self, from: IpAddr, reserved: Duration, time: Duration, genuine: bool) {
        self.plugin_time.spend(from, reserved, time, genuine, self.began.elapsed());
    }

    /// How many of a call's log lines may be written; the others are counted, with those that did not fit into the call's own limit.
    pub fn log<'a>(&self, lines: &'a [LogLine], dropped: u64) -> &'a [LogLine] {
        let fit = lines.iter().take_while(|_| self.log_lines.check().is_ok()).count();
        let (kept, cut) = lines.split_at(fit);
        self.log_dropped.increment(dropped.saturating_add(cut.len() as u64));
        kept
    }

    fn reached(&self, limited: Limited) -> Limited {
        self.limited.count(limited.label());
        limited
    }
}

impl Limited {
    /// The label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Rate(..) => "rate",
            Self::Concurrency(_) => "concurrency",
            Self::PluginTime(..) => "plugin-time",
            Self::Stranger(..) => "plugin-time-of-address",
        }
    }

    /// What the sender is told.
    pub const fn rejection(self) -> Rejection {
        let after = match self {
            Self::Rate(_, after) | Self::PluginTime(_, after) | Self::Stranger(_, after) => after,
            Self::Concurrency(_) => BURST,
        };
        Rejection::RateLimited { after }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(Rate { count, per }, after) => {
                write!(f, "limits.rate: {count} of {count} verified events in {per:?}; more after {after:?}")
            }
            Self::Concurrency(most) => write!(f, "limits.concurrency: {most} of {most} requests are in work"),
            Self::PluginTime(TimeShare { time, per }, after) => {
                write!(f, "limits.plugin_time: {time:?} of {time:?} in {per:?} used or reserved; more after {after:?}")
            }
            Self::Stranger(TimeShare { time, per }, after) => write!(
                f,
                "limits.plugin_time: this address, unknown as a genuine sender, used its quarter of {time:?} in {per:?}; more after {after:?}"
            ),
        }
    }
}

/// A place among a tenant's requests in work, until it is dropped or given up.
pub struct Place(Mutex<Option<OwnedSemaphorePermit>>);

impl Place {
    /// What is left to do is to wait for another request.
    pub fn give_up(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// So many per so long, all of them at once if they like.
fn quota(rate: Rate) -> Quota {
    let count = NonZeroU32::new(rate.count).unwrap_or(NonZeroU32::MIN);
    let each = (rate.per / count.get()).max(Duration::from_nanos(1));
    Quota::with_period(each).map_or_else(|| Quota::per_second(count), |quota| quota.allow_burst(count))
}
