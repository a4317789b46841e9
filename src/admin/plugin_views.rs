//! Plugins as the API shows them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::config::model::Limits;
use crate::deploy::desk::{Activated, Overview, Uploaded};
use crate::event::{Event, Timestamp, Value};
use crate::gateway::rfc3339;
use crate::gateway::shadow::{Report, Summary};
use crate::plugin::caps::BYTES_MAX;
use crate::plugin::registry::{CodeDigest, PluginId, VersionRecord};
use crate::plugin::{Budget, Inspected, Inspection, Usage, Used};

use super::Problem;

/// How much of a limit is used.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsedView {
    used: u64,
    limit: u64,
}

impl From<Used> for UsedView {
    fn from(Used { used, limit }: Used) -> Self {
        Self { used, limit }
    }
}

/// A version that was let in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UploadedView {
    /// Of its code; what `activate` takes.
    digest: String,
    /// What its author calls it.
    version: String,
    /// Part of every key that it names; mostly empty.
    key_namespace: String,
    /// The most that a call took: of the cases, else of `describe`.
    fuel: u64,
    /// The most that a call took, in bytes.
    memory: u64,
    /// Bytes of the component.
    size: u64,
    compile_ms: u64,
    /// Cases that it passed.
    cases: u64,
    limits: LimitsView,
    /// The tenant's code in bytes, this version included.
    code: UsedView,
    /// Older versions that went for it.
    removed: Vec<String>,
}

/// What these may be at most.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LimitsView {
    /// For any call; each byte of a request's body adds some.
    fuel: u64,
    memory: u64,
    size: u64,
}

impl UploadedView {
    pub fn of(done: &Uploaded, limits: &Limits) -> Self {
        let VersionRecord { digest, version, key_namespace, size, fuel, memory, compile_ms, cases, .. } =
            done.record.clone();
        let budget = Budget::default();
        Self {
            digest: digest.to_string(),
            version,
            key_namespace,
            fuel,
            memory,
            size,
            compile_ms,
            cases,
            limits: LimitsView { fuel: budget.fuel, memory: budget.memory_bytes as u64, size: BYTES_MAX as u64 },
            code: UsedView { used: done.code_used, limit: limits.code as u64 },
            removed: done.removed.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A tenant's plugins.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PluginList {
    plugins: Vec<PluginView>,
    /// Bytes of all versions together.
    code: UsedView,
    /// Versions that are kept of each plugin, beside those that serve.
    versions_kept: usize,
    /// Uploads in `seconds`.
    uploads: RateView,
}

/// So many in so long.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RateView {
    count: u32,
    seconds: u64,
}

impl PluginList {
    pub fn of(plugins: &[Overview], used: u64, limits: &Limits) -> Self {
        Self {
            plugins: plugins.iter().map(PluginView::of).collect(),
            code: UsedView { used, limit: limits.code as u64 },
            versions_kept: limits.versions,
            uploads: RateView { count: limits.uploads.count, seconds: limits.uploads.per.as_secs() },
        }
    }
}

/// A plugin.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PluginView {
    name: String,
    /// The highest one that the registry has; 0: nothing was ever activated.
    generation: u64,
    /// The one that this gateway serves; 0: none.
    serving_generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    active: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<String>,
    /// What the one that runs beside the active version does differently, on all gateways together.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_report: Option<Summary>,
    /// Why this gateway does not serve the newest generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Those that name it.
    routes: Vec<String>,
    /// Newest first.
    versions: Vec<VersionView>,
}

/// A version.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VersionView {
    digest: String,
    /// What its author calls it.
    version: String,
    /// `active`, `previous`, `shadow`, or else `uploaded`.
    state: &'static str,
    key_namespace: String,
    size: u64,
    fuel: u64,
    memory: u64,
    compile_ms: u64,
    cases: u64,
    /// The token's name.
    by: String,
    at: String,
}

impl PluginView {
    pub fn of(found: &Overview) -> Self {
        let named = found.standing.generation.as_ref();
        let active = named.map(|generation| generation.active);
        let previous = named.and_then(|generation| generation.previous);
        let shadow = named.and_then(|generation| generation.shadow);
        let state = |digest: CodeDigest| match Some(digest) {
            digest if digest == active => "active",
            digest if digest == shadow => "shadow",
            digest if digest == previous => "previous",
            _ => "uploaded",
        };
        let text = |digest: Option<CodeDigest>| digest.map(|digest| digest.to_string());
        Self {
            name: found.id.name.clone(),
            generation: found.standing.number,
            serving_generation: found.status.as_ref().map_or(0, |status| status.serving_number()),
            active: text(active),
            previous: text(previous),
            shadow: text(shadow),
            shadow_report: found.shadow.as_ref().map(Report::summary),
            fault: found.status.as_ref().and_then(|status| status.fault.clone()),
            routes: found.routes.clone(),
            versions: found.versions.iter().map(|record| VersionView::of(record, state(record.digest))).collect(),
        }
    }
}

impl VersionView {
    fn of(record: &VersionRecord, state: &'static str) -> Self {
        let VersionRecord { digest, version, key_namespace, size, fuel, memory, compile_ms, cases, by, at_ms } =
            record.clone();
        Self {
            digest: digest.to_string(),
            version,
            state,
            key_namespace,
            size,
            fuel,
            memory,
            compile_ms,
            cases,
            by,
            at: rfc3339::write(Timestamp::from_micros(at_ms.saturating_mul(1000))),
        }
    }
}

/// What an activation or a rollback came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ActivatedView {
    plugin: String,
    generation: u64,
    active: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<String>,
    /// Whether this gateway serves it already; the others follow within two seconds.
    serving: bool,
    /// Why not, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

impl ActivatedView {
    pub fn of(id: &PluginId, done: Activated) -> Self {
        let Activated { generation, serving, fault } = done;
        Self {
            plugin: id.to_string(),
            generation: generation.generation,
            active: generation.active.to_string(),
            previous: generation.previous.map(|digest| digest.to_string()),
            shadow: generation.shadow.map(|digest| digest.to_string()),
            serving,
            fault,
        }
    }
}

/// What a version made of a request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DecisionView {
    /// `process`, `respond`, `pass`, `reject`, `invalid`, `stale`, `unsigned` or `failed`.
    decision: &'static str,
    verified: bool,
    /// Why, in the plugin's or the host's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Of `respond` and `reject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    events: Vec<EventView>,
    usage: UsageView,
    log: Vec<String>,
}

/// An event as the plugin names it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventView {
    key: Vec<String>,
    key_signed: bool,
    aliases: Vec<Vec<String>>,
    material: Vec<FieldView>,
}

/// A material field.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FieldView {
    name: String,
    /// `text`, `number`, `bool`, `null` or `bytes`.
    kind: &'static str,
    value: String,
}

/// What a call used of what it may use.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageView {
    fuel: UsedView,
    memory_bytes: UsedView,
    output_bytes: UsedView,
    wall_us: UsedView,
    log_bytes: UsedView,
}

impl DecisionView {
    pub fn of(inspected: &Inspected) -> Self {
        let (decision, detail, status, events) = match &inspected.result {
            Err(failure) => ("failed", Some(failure.to_string()), None, &[][..]),
            Ok(Inspection::Invalid(refusal)) => {
                let told = format!("{}: {}", refusal.reason.as_str(), refusal.detail);
                ("invalid", Some(told), refusal.status.map(|status| status.as_u16()), &[][..])
            }
            Ok(Inspection::Stale(seconds)) => {
                ("stale", Some(format!("{seconds} s outside the tolerance")), None, &[][..])
            }
            Ok(Inspection::UnsignedRefused) => ("unsigned", None, None, &[][..]),
            Ok(Inspection::Respond(reply)) => ("respond", None, Some(reply.status.as_u16()), &[][..]),
            Ok(Inspection::Pass(why)) => ("pass", Some(why.clone()), None, &[][..]),
            Ok(Inspection::Reject { status, code, detail }) => {
                ("reject", Some(format!("{code}: {detail}")), Some(status.as_u16()), &[][..])
            }
            Ok(Inspection::Events(events)) => ("process", None, None, events.as_slice()),
        };
        Self {
            decision,
            verified: inspected.verified,
            detail,
            status,
            events: events.iter().map(EventView::of).collect(),
            usage: UsageView::of(&inspected.usage),
            log: inspected.log.iter().map(|line| line.text.clone()).collect(),
        }
    }
}

impl EventView {
    fn of(event: &Event) -> Self {
        let field = |(name, value): (&String, &Value)| {
            let (kind, value) = match value {
                Value::Text(text) => ("text", text.clone()),
                Value::Number(token) => ("number", token.clone()),
                Value::Bool(truth) => ("bool", truth.to_string()),
                Value::Null => ("null", String::new()),
                Value::Bytes(bytes) => ("bytes", hex::encode(bytes)),
            };
            FieldView { name: name.clone(), kind, value }
        };
        Self {
            key: event.key.clone(),
            key_signed: event.key_signed,
            aliases: event.aliases.clone(),
            material: event.material.iter().map(|material| field((&material.name, &material.value))).collect(),
        }
    }
}

impl UsageView {
    fn of(usage: &Usage) -> Self {
        Self {
            fuel: usage.fuel.into(),
            memory_bytes: usage.memory_bytes.into(),
            output_bytes: usage.output_bytes.into(),
            wall_us: usage.wall_us.into(),
            log_bytes: usage.log_bytes.into(),
        }
    }
}

/// A digest as callers write it.
pub(super) fn digest(text: &str) -> Result<CodeDigest, Problem> {
    text.parse().map_err(|why| Problem::BadBody(format!("`digest` is not one: {why}.")))
}
