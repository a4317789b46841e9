//! Onceward: a webhook ingestion gateway that forwards each business event once, and answers every redelivery with the first
//! answer.
//!
//! A request's way, down once and back once:
//!
//! ```text
//! socket → server → route → admission → plugin.verify → plugin.extract → identity → claim → forward → finalise → reply
//! ```
//!
//! [`gateway::handle`] shows that way on one screen; read it first. The rooms in reading order, each with what holds in it:
//!
//! | room | what it is | invariant |
//! |---|---|---|
//! | [`event`], [`number`] | the nouns that rooms hand to one another | plain data: no I/O, no clock |
//! | [`idempotency`] | record, policy, and the state machine as two pure functions | time is an argument; nothing waits |
//! | [`store`] | one conditional write over memory, SQLite, PostgreSQL or Redis | no transitions and no policy here; a write happens only over what its writer saw |
//! | [`plugin`] | the WebAssembly host: verify, then extract, in one fresh instance | what a guest returns is hostile until checked; secrets never enter a guest |
//! | [`config`] | TOML through figment, all faults at once | nobody else reads the environment |
//! | [`gateway`] | the journey: route, admission, identity, dedupe, forward, reply | a claim stands before anything is forwarded; only `rejection` knows HTTP statuses |
//! | [`deploy`] | which version of a tenant's plugin serves: the upload gate, the registry's generations, the swap | nothing serves that was not prepared whole; the last good one serves on |
//! | [`server`] | accepts, checks raw heads, one runtime a core, drains | knows no route, store or plugin |
//! | [`admin`] | health, metrics and the operators' API on a listener of its own | never on the ingest port; a tenant's token sees its tenant alone |
//! | [`telemetry`] | logs and metrics | no bodies, no secrets; no label from a request |
//! | [`app`] | the composition root | the only place that names every concrete type |
//! | [`cli`] | one file a command | results to stdout, the rest to stderr |
//!
//! Calls go down only: `cli → app → {server, deploy} → gateway → {plugin, store} → idempotency → event`. `tests/tidy.rs` holds the tree to
//! that, and `docs/design.md` says why it is so.

pub mod event;
pub mod number;

pub mod idempotency;

pub mod store;

pub mod plugin;

pub mod config;

pub mod gateway;

pub mod deploy;

pub mod server;

pub mod admin;

pub mod telemetry;

pub mod app;

pub mod cli;
