//! How often senders and tenants may come. Shared by all cores of a process; counters only.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::time::interval;

use crate::config::model::{Rate, Server, Tenant};

use super::rejection::Rejection;

/// How often addresses that came long ago are forgotten, so that the table holds only those of late.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// The rates of one process.
#[derive(Clone)]
pub struct Rates(Arc<Tables>);

struct Tables {
    addresses: DefaultKeyedRateLimiter<IpAddr>,
    tenants: HashMap<String, (DefaultDirectRateLimiter, Rate)>,
}

impl Rates {
    /// As configured.
    pub fn new(server: &Server, tenants: &BTreeMap<String, Arc<Tenant>>) -> Self {
        let tenant = |(name, tenant): (&String, &Arc<Tenant>)| {
            (name.clone(), (RateLimiter::direct(quota(tenant.limits.rate)), tenant.limits.rate))
        };
        Self(Arc::new(Tables {
            addresses: RateLimiter::keyed(quota(server.per_address.rate)),
            tenants: tenants.iter().map(tenant).collect(),
        }))
    }

    /// One request from an address, counted before anything is verified.
    ///
    /// # Errors
    /// [`Rejection::RateLimited`] with the time after which one more is accepted.
    pub fn request(&self, from: IpAddr) -> Result<(), Rejection> {
        self.0.addresses.check_key(&from).map_err(|until| limited(until.wait_time_from(DefaultClock::default().now())))
    }

    /// So many verified events of a tenant. More in one request than the rate lets through at once can never pass: they count as
    /// that many.
    ///
    /// # Errors
    /// [`Rejection::RateLimited`] with the time after which they are accepted.
    pub fn verified(&self, tenant: &str, events: usize) -> Result<(), Rejection> {
        let Some((limiter, rate)) = self.0.tenants.get(tenant) else { return Ok(()) };
        let count = u32::try_from(events).unwrap_or(u32::MAX).clamp(1, rate.count.max(1));
        let Some(count) = NonZeroU32::new(count) else { return Ok(()) };
        match limiter.check_n(count) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => Err(limited(until.wait_time_from(DefaultClock::default().now()))),
            Err(_) => Err(limited(rate.per)),
        }
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

fn limited(after: Duration) -> Rejection {
    Rejection::RateLimited { after }
}

/// So many per so long, all of them at once if they like.
fn quota(rate: Rate) -> Quota {
    let count = NonZeroU32::new(rate.count).unwrap_or(NonZeroU32::MIN);
    let each = (rate.per / count.get()).max(Duration::from_nanos(1));
    Quota::with_period(each).map_or_else(|| Quota::per_second(count), |quota| quota.allow_burst(count))
}
