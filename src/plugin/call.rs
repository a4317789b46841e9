//! One call: a fresh instance looks at one delivery, verify first, then extract.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use wasmtime::{FrameInfo, PoolConcurrencyLimitError, Store, Trap, WasmBacktrace};

use super::bindings::{Disposition, Fault, Guest, Prepared, Taken, Verdict};
use super::certificates::Certificates;
use super::engine::{MEMORY_MAX, Shared};
use super::failure::{Failure, FailureKind, Stage};
use super::host::{Ctx, LogLine, Meter, Metered, Usage, Used};
use super::load::Plugin;
use super::ticker::Running;
use crate::event::{Delivery, Event, PluginReply, Secret};

/// What one call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Fuel for any call.
    pub fuel: u64,
    /// Fuel more for each byte of the body.
    pub fuel_per_byte: u64,
    /// Processor time in the guest: neither what it gives to others nor what a busy machine takes counts.
    pub wall: Duration,
    /// Bytes of memory; the host's pool has 64 MiB a guest, and no budget can give more.
    pub memory_bytes: usize,
    /// Bytes returned by all of a call's functions together.
    pub output_bytes: usize,
    /// Bytes logged.
    pub log_bytes: usize,
}

impl Budget {
    /// The longest a guest may run, whatever a tenant's budget says.
    pub const WALL_MAX: Duration = Duration::from_millis(100);
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            fuel: 5_000_000,
            fuel_per_byte: 400,
            wall: Duration::from_millis(25),
            memory_bytes: MEMORY_MAX,
            output_bytes: 64 << 10,
            log_bytes: 8 << 10,
        }
    }
}

/// What a plugin needs with a route's config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Request headers read, in lower case; `*` for all.
    pub headers: Vec<String>,
    /// Names of secrets.
    pub secrets: Vec<String>,
    /// May answer that the sender signs nothing.
    pub allows_unsigned: bool,
    /// Methods beside POST.
    pub methods: Vec<http::Method>,
    /// Hosts that certificates come from.
    pub certificate_hosts: Vec<String>,
}

/// What a plugin finds wrong in a route's config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// JSON pointer into the config.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

/// What a route gives its plugin: made once, when the config is loaded.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// The route's `plugin_config`, as JSON.
    pub config: String,
    /// Secrets by name, newest first. Any other name is an unknown secret.
    pub secrets: BTreeMap<String, Vec<Secret>>,
    /// Certificates that senders sign with; without them none is trusted yet.
    pub certificates: Option<Arc<Certificates>>,
    /// What `examine` answered for this config.
    pub needs: Needs,
    /// Whether a sender that signs nothing is accepted.
    pub allow_unsigned: bool,
    /// What one call may use.
    pub budget: Budget,
}

/// What became of a delivery in the plugin.
#[derive(Debug)]
pub struct Inspected {
    /// What the plugin made of it.
    pub result: Result<Inspection, Failure>,
    /// Whether `verify` said so, also when `extract` then failed.
    pub verified: bool,
    /// What it used.
    pub usage: Usage,
    /// What it logged: for [`Plugin::report`].
    pub log: Vec<LogLine>,
}

impl Inspected {
    /// Why there is no result, with what was used of what limit; none: there is one.
    pub fn why_not(&self) -> Option<String> {
        let failure = self.result.as_ref().err()?;
        let Usage { fuel, memory_bytes, output_bytes, wall_us, .. } = self.usage;
        let of =
            |what: &str, Used { used, limit }: Used, unit: &str| format!("{failure}; {what} {used} of {limit}{unit}");
        Some(match failure.kind {
            FailureKind::OutOfFuel => of("fuel", fuel, ""),
            FailureKind::Timeout => of("processor time", wall_us, " µs"),
            FailureKind::MemoryLimit => of("memory before that", memory_bytes, " B"),
            FailureKind::OutputLimit => of("output before that", output_bytes, " B"),
            _ => failure.to_string(),
        })
    }
}

/// What a plugin says of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// The sender is not who it should be.
    Invalid(Refusal),
    /// Seconds outside the tolerance: positive is too old, negative is in the future.
    Stale(i64),
    /// The sender signs nothing, and the route does not accept that.
    UnsignedRefused,
    /// Events to deduplicate; none: no key. A key without anything but blanks is given as no key.
    Events(Vec<Event>),
    /// An answer at once; not an event.
    Respond(PluginReply),
    /// To be forwarded each time; the text says why.
    Pass(String),
    /// To be refused.
    Reject {
        /// 400–499.
        status: http::StatusCode,
        /// The plugin's own code.
        code: String,
        /// For the sender.
        detail: String,
    },
}

/// Why a sender was not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which check failed.
    pub reason: Reason,
    /// For the log; the sender learns nothing.
    pub detail: String,
    /// What this sender wants for a refusal, 400–499; none: the route's.
    pub status: Option<http::StatusCode>,
}

/// Which check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A signature that no secret made.
    BadSignature,
    /// No signature where one belongs.
    MissingSignature,
    /// A signature header that cannot be read.
    Malformed,
    /// A certificate that the route does not trust.
    UntrustedCertificate,
    /// A key that the route does not have.
    UnknownKey,
}

impl Reason {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadSignature => "bad-signature",
            Self::MissingSignature => "missing-signature",
            Self::Malformed => "malformed",
            Self::UntrustedCertificate => "untrusted-certificate",
            Self::UnknownKey => "unknown-key",
        }
    }
}

impl Plugin {
    /// Asks what the plugin needs with a route's config, or what is wrong in it.
    ///
    /// # Errors
    /// When the plugin gives no answer.
    pub async fn examine(&self, config: &str) -> Result<Result<Needs, Vec<ConfigFault>>, Failure> {
        let budget = Budget { wall: Budget::WALL_MAX, ..Budget::default() };
        let mut call = Call::new(self.shared(), None, &budget, config.len(), true);
        let work = async |call: &mut Call| {
            let guest = call.instantiate(self.prepared()).await?;
            let told = guest.examine(&mut call.store, config, &mut call.taken).await;
            told.map_err(|fault| call.failure(fault, Stage::Examine))
        };
        call.guarded(Stage::Examine, work).await
    }

    /// Looks at a delivery in a fresh instance. Dropping the future ends the guest and frees its slot.
    pub async fn inspect(&self, grant: &Arc<Grant>, delivery: &Arc<Delivery>) -> Inspected {
        let request = Some((Arc::clone(grant), Arc::clone(delivery)));
        let mut call = Call::new(self.shared(), request, &grant.budget, delivery.body.len(), true);
        let mut verified = false;
        let work = async |call: &mut Call| call.inspect(self.prepared(), grant.allow_unsigned, &mut verified).await;
        let result = call.guarded(Stage::Verify, work).await;
        let usage = call.usage();
        let log = std::mem::take(&mut call.store.data_mut().log.lines);
        Inspected { result, verified, usage, log }
    }
}

/// A store with its budget.
pub(super) struct Call {
    pub(super) store: Store<Ctx>,
    pub(super) taken: Taken,
    meter: Arc<Meter>,
    wall: Duration,
    fuel: u64,
    budget: Budget,
    _ticks: Running,
}

impl Call {
    /// `yields`: whether the guest lets others run at each tick; a call that does not is finished in one poll.
    pub(super) fn new(
        shared: &Shared,
        request: Option<(Arc<Grant>, Arc<Delivery>)>,
        budget: &Budget,
        input_bytes: usize,
        yields: bool,
    ) -> Self {
        let wall = budget.wall.min(Budget::WALL_MAX);
        let fuel = budget.fuel.saturating_add(budget.fuel_per_byte.saturating_mul(input_bytes as u64));
        let ctx = Ctx::new(request, budget);
        let meter = Arc::clone(&ctx.meter);

        let mut store = Store::new(&shared.engine, ctx);
        store.limiter(|ctx| &mut ctx.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(Meter::on_tick(wall, yields));
        store.set_hostcall_fuel(shared.handover_max);
        store.set_max_component_handles(64);
        Self {
            store,
            taken: Taken::new(budget.output_bytes),
            meter,
            wall,
            fuel,
            budget: *budget,
            _ticks: shared.ticker.begin(),
        }
    }

    pub(super) async fn instantiate(&mut self, prepared: &Prepared) -> Result<Guest, Failure> {
        let made = match self.store.set_fuel(self.fuel) {
            Ok(()) => prepared.instantiate(&mut self.store).await,
            Err(error) => Err(error),
        };
        made.map_err(|error| self.failure(error.into(), Stage::Instantiate))
    }

    async fn inspect(
        &mut self,
        prepared: &Prepared,
        allow_unsigned: bool,
        verified: &mut bool,
    ) -> Result<Inspection, Failure> {
        let guest = self.instantiate(prepared).await?;
        let verdict = guest.verify(&mut self.store, &mut self.taken).await;
        match verdict.map_err(|fault| self.failure(fault, Stage::Verify))? {
            Verdict::Verified => *verified = true,
            Verdict::Unsigned if allow_unsigned => {}
            Verdict::Unsigned => return Ok(Inspection::UnsignedRefused),
            Verdict::Invalid(refusal) => return Ok(Inspection::Invalid(refusal)),
            Verdict::Stale(seconds) => return Ok(Inspection::Stale(seconds)),
            Verdict::Respond(reply) => return Ok(Inspection::Respond(reply)),
        }
        let told = guest.extract(&mut self.store, &mut self.taken).await;
        Ok(match told.map_err(|fault| self.failure(fault, Stage::Extract))? {
            Disposition::Process(events) => Inspection::Events(events),
            Disposition::Respond(reply) => Inspection::Respond(reply),
            Disposition::Pass(why) => Inspection::Pass(why),
            Disposition::Reject { status, code, detail } => Inspection::Reject { status, code, detail },
        })
    }

    /// Runs the work measured, and turns a panic of the host into a failure of this one call.
    pub(super) async fn guarded<T>(
        &mut self,
        stage: Stage,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let meter = Arc::clone(&self.meter);
        // The store is not used again after a panic but for its counters.
        let run = AssertUnwindSafe(Metered::new(meter, work(self))).catch_unwind().await;
        run.unwrap_or_else(|_| Err(Failure::new(FailureKind::Host, stage, "the host panicked")))
    }

    pub(super) fn failure(&self, fault: Fault, stage: Stage) -> Failure {
        match fault {
            Fault::Answer(kind, detail) => Failure::new(kind, stage, detail),
            Fault::Ended(error) => {
                let kind = self.kind(&error, stage);
                Failure::new(kind, stage, told(&error))
            }
        }
    }

    fn kind(&self, error: &wasmtime::Error, stage: Stage) -> FailureKind {
        if self.store.data().limits.exceeded {
            return FailureKind::MemoryLimit;
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => FailureKind::OutOfFuel,
            Some(Trap::Interrupt) => FailureKind::Timeout,
            Some(_) => FailureKind::GuestTrap,
            None if error.is::<PoolConcurrencyLimitError>() => FailureKind::HostBusy,
            None if format!("{error:#}").contains(HANDOVER_EXCEEDED) => FailureKind::OutputLimit,
            None if stage == Stage::Instantiate => FailureKind::Host,
            // What is left are values that Wasmtime could not read: lists out of bounds, text that is not UTF-8, unknown cases.
            None => FailureKind::Contract,
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let used = |used: usize, limit: usize| Used { used: used as u64, limit: limit as u64 };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let ctx = self.store.data();
        let fuel_left = self.store.get_fuel().unwrap_or(0);
        Usage {
            fuel: Used { used: self.fuel.saturating_sub(fuel_left), limit: self.fuel },
            memory_bytes: used(ctx.limits.memory_peak, self.budget.memory_bytes.min(MEMORY_MAX)),
            output_bytes: used(self.taken.used, self.budget.output_bytes),
            log_bytes: used(ctx.log.used, self.budget.log_bytes),
            wall_us: Used { used: micros(self.meter.used()), limit: micros(self.wall) },
            log_dropped: ctx.log.dropped,
            signatures: ctx.signatures,
        }
    }
}

/// The cause, and the guest's innermost functions where it has names: the error's own text would put a page of frames first.
fn told(error: &wasmtime::Error) -> String {
    let frames = error.downcast_ref::<WasmBacktrace>().map_or(&[][..], WasmBacktrace::frames);
    let names: Vec<&str> = frames.iter().filter_map(FrameInfo::func_name).take(5).collect();
    let cause = error.root_cause();
    if names.is_empty() { cause.to_string() } else { format!("{cause}, in {}", names.join(" < ")) }
}

/// What Wasmtime says when a guest hands over more than it may; its error type is private.
const HANDOVER_EXCEEDED: &str = "fuel allocated for hostcalls";
