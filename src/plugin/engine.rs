//! The Wasmtime engine: what a guest may be, and how many run at once.

use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::component::Linker;
use wasmtime::{Config, InstanceAllocationStrategy, ModuleVersionStrategy, PoolingAllocationConfig, Strategy};

use super::bindings;
use super::host::Ctx;
use super::ticker::Ticker;

/// Wasmtime's version, to the patch. Compiled code names it: by itself Wasmtime would take code of any patch of its major version,
/// with the faults that the compiler had then.
pub(super) const WASMTIME: &str = env!("ONCEWARD_WASMTIME");

/// The largest memory a guest can have, in bytes: the pool's slots are made for it.
pub(super) const MEMORY_MAX: usize = 64 << 20;
/// The most elements a guest's tables hold, each.
pub(super) const TABLE_ELEMENTS_MAX: usize = 20_000;
/// Core instances in one component; one that `wit-component` wraps has three.
pub(super) const INSTANCES_MAX: u32 = 16;
/// Tables in one component.
pub(super) const TABLES_MAX: u32 = 4;
/// What a guest may hand over in one call beside the body, in bytes.
const HANDOVER: usize = 256 << 10;

/// How large the host is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Calls that run at once; more get `host-busy`.
    pub concurrency: u32,
    /// The largest request body that the gateway takes, in bytes.
    pub max_body: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { concurrency: 256, max_body: 1 << 20 }
    }
}

/// The machine could not give what the host needs.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Wasmtime refused the settings or found no address space: it reserves about 4 GiB of it (not memory) a call.
    #[error("the plugin host cannot start: {0}")]
    Engine(String),
    /// No thread for the ticker.
    #[error("the plugin host cannot start its ticker thread")]
    Ticker(#[from] std::io::Error),
}

/// Loads plugins and runs them. Cheap to clone; the ticker thread ends with the last clone and the last plugin.
#[derive(Clone)]
pub struct Engine {
    pub(super) shared: Arc<Shared>,
}

/// What all plugins of an engine use.
pub(super) struct Shared {
    pub(super) engine: wasmtime::Engine,
    pub(super) linker: Linker<Ctx>,
    pub(super) ticker: Ticker,
    pub(super) handover_max: usize,
}

impl Engine {
    /// Reserves the pool and starts the ticker.
    ///
    /// # Errors
    /// When the machine has no room for either.
    pub fn new(settings: Settings) -> Result<Self, HostError> {
        let refused = |error: wasmtime::Error| HostError::Engine(format!("{error:#}"));
        let mut config = config(settings);
        config.module_version(ModuleVersionStrategy::Custom(WASMTIME.to_owned())).map_err(refused)?;
        let engine = wasmtime::Engine::new(&config).map_err(refused)?;
        let mut linker = Linker::new(&engine);
        bindings::link(&mut linker).map_err(refused)?;
        let ticker = Ticker::start(engine.weak())?;
        let handover_max = settings.max_body.saturating_add(HANDOVER);
        Ok(Self { shared: Arc::new(Shared { engine, linker, ticker, handover_max }) })
    }
}

fn config(settings: Settings) -> Config {
    let calls = settings.concurrency;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls.saturating_mul(8))
        .total_memories(calls)
        .total_tables(calls.saturating_mul(TABLES_MAX))
        .total_stacks(calls)
        .max_core_instances_per_component(INSTANCES_MAX)
        .max_memories_per_component(1)
        .max_tables_per_component(TABLES_MAX)
        .max_memory_size(MEMORY_MAX)
        .table_elements(TABLE_ELEMENTS_MAX)
        // A call's price is the first touch of its pages: keeping a few resident halves it. The pagemap scan stays off, since it
        // may skip pages that were swapped out while dirty.
        .linear_memory_keep_resident(256 << 10)
        .table_keep_resident(64 << 10)
        .max_unused_warm_slots(64);

    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .strategy(Strategy::Cranelift)
        .memory_init_cow(true)
        // Fuel is the budget that counts, the same on every machine. Epochs bound the time, and let others run in between.
        .consume_fuel(true)
        .epoch_interruption(true)
        // A guest that fills the whole async stack would abort the process.
        .max_wasm_stack(256 << 10)
        .async_stack_size(1 << 20)
        .async_stack_zeroing(false)
        // The same bytes give the same answer on every replica.
        .cranelift_nan_canonicalization(true)
        // Proposals that no plugin needs are only more code that can be wrong.
        .concurrency_support(false)
        .gc_support(false)
        .wasm_gc(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(16));
    config
}
