//! How often tenants may upload. Counted by this process alone.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::model::{Rate, Tenant};

/// The uploads of one process, by tenant.
pub(super) struct Uploads(BTreeMap<String, One>);

struct One {
    rate: DefaultDirectRateLimiter,
    limit: Rate,
    turn: Arc<Semaphore>,
}

/// A tenant's turn to upload; the next one may begin when it is dropped.
pub struct Turn {
    pub(super) tenant: String,
    _permit: OwnedSemaphorePermit,
}

/// Not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// Another upload of the tenant is under way.
    Busy,
    /// The rate is used up.
    Rate {
        /// What is allowed.
        limit: Rate,
        /// How long until one more is.
        after: Duration,
    },
}

impl Uploads {
    pub(super) fn new(tenants: &BTreeMap<String, Arc<Tenant>>) -> Self {
        let one = |(name, tenant): (&String, &Arc<Tenant>)| {
            let limit = tenant.limits.uploads;
            let count = NonZeroU32::new(limit.count).unwrap_or(NonZeroU32::MIN);
            let each = (limit.per / count.get()).max(Duration::from_nanos(1));
            let quota =
                Quota::with_period(each).map_or_else(|| Quota::per_second(count), |quota| quota.allow_burst(count));
            (name.clone(), One { rate: RateLimiter::direct(quota), limit, turn: Arc::new(Semaphore::new(1)) })
        };
        Self(tenants.iter().map(one).collect())
    }

    /// One upload at a time, and so many in their time; a refused one counts, since it costs as much. None: no such tenant.
    pub(super) fn begin(&self, tenant: &str) -> Option<Result<Turn, NotNow>> {
        let one = self.0.get(tenant)?;
        let Ok(permit) = Arc::clone(&one.turn).try_acquire_owned() else { return Some(Err(NotNow::Busy)) };
        Some(match one.rate.check() {
            Ok(()) => Ok(Turn { tenant: tenant.to_owned(), _permit: permit }),
            Err(until) => {
                Err(NotNow::Rate { limit: one.limit, after: until.wait_time_from(DefaultClock::default().now()) })
            }
        })
    }
}
