//! The faults of a random run, one after the other: gateways are killed, stopped and stalled, the network and the store fail.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::census::Census;
use super::chaos::{LEASE, SharedStore};
use super::driver::{Driver, Event, SLOW, TENANTS};
use super::log::{Loss, Received};
use super::stores::StoreFault;
use crate::support::proxy::{Mode, Proxy};
use crate::support::random::Random;

/// How long a replica may be behind its master, in microseconds.
const BEHIND_MAX: u64 = 200_000;

/// How often each kind of fault struck, and what else is to be known of them.
#[derive(Debug, Default)]
pub struct Struck {
    pub kills: u64,
    pub stops: u64,
    pub stalls: u64,
    pub network: u64,
    pub restarts: u64,
    pub emptied: u64,
    pub failovers: u64,
    pub clock_steps: u64,
    /// Events of stalls, to be settled.
    pub events: Vec<Event>,
    pub losses: Vec<Loss>,
}

/// What faults may strike.
pub struct Ground<'a> {
    pub driver: &'a Arc<Driver>,
    pub census: &'a Arc<Census>,
    /// How many gateways there are.
    pub gateways: usize,
    pub store: &'a SharedStore,
    /// What the store can suffer.
    pub faults: &'static [StoreFault],
    pub to_store: Option<&'a Proxy>,
    pub to_upstream: &'a Proxy,
    pub received: &'a Arc<Mutex<Vec<Received>>>,
}

impl Ground<'_> {
    /// Until the time is over, and each planned fault has struck; everything runs and passes again when it returns.
    pub async fn strike(&self, seed: u64, until: Instant) -> Struck {
        let (mut random, mut struck, mut clock_ms) = (Random(!seed), Struck::default(), 0);
        let mut turn = 0;
        while Instant::now() < until || turn < 4 {
            sleep(Duration::from_millis(200 + random.below(400))).await;
            let victim = usize::try_from(random.below(self.gateways as u64)).unwrap();
            let pause = Duration::from_millis(100 + random.below(700));
            match (turn, random.below(10)) {
                (1, _) if !self.faults.is_empty() => {
                    self.store_fails(self.faults[0], &mut random, &mut clock_ms, &mut struck).await;
                }
                (0 | 3, _) | (_, 9) if self.gateways > 1 => self.stall(victim, &mut random, &mut struck).await,
                (_, 0 | 1) => {
                    struck.kills += 1;
                    self.kill(victim, pause).await;
                }
                (_, 2) => {
                    struck.stops += 1;
                    self.signal(victim, Signal::STOP);
                    sleep(2 * LEASE).await;
                    self.signal(victim, Signal::CONT);
                }
                (_, 8) if self.faults.len() > 1 => {
                    let fault = self.faults[1 + usize::try_from(random.below(self.faults.len() as u64 - 1)).unwrap()];
                    self.store_fails(fault, &mut random, &mut clock_ms, &mut struck).await;
                }
                (_, kind) => {
                    struck.network += 1;
                    self.network(kind, pause, &mut random).await;
                }
            }
            turn += 1;
        }
        struck
    }

    async fn network(&self, kind: u64, pause: Duration, random: &mut Random) {
        let to_store = random.percent(60);
        let proxy = if to_store { self.to_store.unwrap_or(self.to_upstream) } else { self.to_upstream };
        match kind {
            3 => proxy.cut(),
            4 => proxy.set(Mode::Delay(pause / 2)),
            5 => proxy.set(Mode::Refuse),
            6 => proxy.set(Mode::BlackHole),
            _ => proxy.set(Mode::DropReplyTo(b"processing".to_vec(), Box::new(Mode::Pass))),
        }
        sleep(pause).await;
        let was = proxy.mode();
        proxy.set(Mode::Pass);
        if was != Mode::Pass {
            proxy.cut();
        }
    }

    async fn store_fails(&self, fault: StoreFault, random: &mut Random, clock_ms: &mut i32, struck: &mut Struck) {
        let from = self.driver.lines.now();
        let (store, mut chosen, mut clock) = (Arc::clone(self.store), random.clone(), *clock_ms);
        random.next();
        // It waits for processes, and the relays of this test run on this thread.
        let suffered = tokio::task::spawn_blocking(move || {
            store.lock().unwrap().suffer(fault, &mut chosen, &mut clock);
            clock
        });
        *clock_ms = suffered.await.unwrap();
        let until = self.driver.lines.now();
        match fault {
            StoreFault::Restart => struck.restarts += 1,
            StoreFault::Clock => struck.clock_steps += 1,
            StoreFault::Empty => {
                struck.emptied += 1;
                struck.losses.push(Loss { from: 0, until, emptied: true });
            }
            StoreFault::FailOver => {
                struck.failovers += 1;
                struck.losses.push(Loss { from: from.saturating_sub(BEHIND_MAX), until, emptied: false });
            }
        }
    }

    /// A gateway is stopped while it forwards, for longer than its lease; another one takes the event over, and still forwards it
    /// when the first one goes on and has its outcome to write.
    async fn stall(&self, victim: usize, random: &mut Random, struck: &mut Struck) {
        let tenant = usize::try_from(random.below(TENANTS.len() as u64)).unwrap();
        let event = Event { tenant, id: SLOW + struck.stalls, variant: 0 };
        struck.stalls += 1;
        struck.events.push(event);
        self.deliver(victim, event);
        if !self.arrives(event, 1, None).await {
            return;
        }
        self.signal(victim, Signal::STOP);
        sleep(LEASE).await;
        self.arrives(event, 2, Some((victim + 1) % self.gateways)).await;
        self.signal(victim, Signal::CONT);
    }

    fn deliver(&self, gateway: usize, event: Event) {
        let driver = Arc::clone(self.driver);
        tokio::spawn(async move { driver.deliver(gateway, event).await });
    }

    /// Whether so many requests of the event arrive at the upstream, while it is redelivered to a gateway.
    async fn arrives(&self, event: Event, count: usize, by: Option<usize>) -> bool {
        let arrived = || self.received.lock().unwrap().iter().filter(|received| received.key == event.key()).count();
        let waiting = async {
            while arrived() < count {
                if let Some(gateway) = by {
                    self.deliver(gateway, event);
                }
                for _ in 0..10 {
                    if arrived() < count {
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        };
        timeout(Duration::from_secs(2), waiting).await.is_ok()
    }

    async fn kill(&self, victim: usize, pause: Duration) {
        self.census.kill(self.driver, victim).await;
        sleep(pause).await;
        let census = Arc::clone(self.census);
        let again = tokio::task::spawn_blocking(move || census.start(victim)).await.unwrap();
        self.driver.gateways.lock().unwrap()[victim] = Some(again);
    }

    fn signal(&self, victim: usize, signal: Signal) {
        if let Some(gateway) = &self.driver.gateways.lock().unwrap()[victim] {
            gateway.signal(signal);
        }
    }
}
