//! What a route wants: read per request, never written into a record. A later change of config reinterprets nothing.

use std::time::Duration;

/// The route's idempotency policy, checked. Contract §2 has the defaults and their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a success is remembered, from its finish.
    pub window: Duration,
    /// A claim's life without renewal.
    pub lease: Duration,
    /// What a delivery without a key gets.
    pub missing_key: OnMissingKey,
    /// What a duplicate of a running event gets.
    pub in_flight: InFlight,
    /// The status of a mismatch: 409, 422, or 202 (accepted, quarantined).
    pub mismatch_status: u16,
    /// What follows an outcome that nobody knows.
    pub unknown: OnUnknown,
    /// What follows a definite failure.
    pub failed: OnFailed,
    /// How many forwards an event gets under [`OnFailed::DeadLetter`].
    pub max_attempts: u32,
    /// Whether an equal raw body is a duplicate too.
    pub body_alias: bool,
    /// How long a definite failure is remembered.
    pub failed_window: Duration,
    /// Which statuses are kept as success.
    pub final_statuses: FinalStatuses,
    /// What happens when the store cannot answer.
    pub store_down: OnStoreDown,
    /// What happens when the plugin fails.
    pub plugin_failure: OnPluginFailure,
    /// Whether requests that wait for a person are kept.
    pub keep_request: KeepRequest,
    /// What of an answer is kept.
    pub replay: Replay,
}

impl Policy {
    /// How long an event that is not finished is remembered: at least a day, so that an operator can look.
    pub fn open_ttl(&self) -> Duration {
        self.window.max(Duration::from_hours(24))
    }
}

/// What a delivery without a key gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissingKey {
    /// 400.
    Reject,
    /// Forwarded without dedupe.
    Pass,
    /// Its body's digest is the key.
    HashBody,
}

/// What a duplicate of a running event gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// How long it waits for the winner's answer.
    pub wait: Duration,
    /// The status after that: 409, 425, 429 or 503.
    pub status: u16,
}

/// What follows an outcome that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// The next delivery after the lease forwards again, with the same key and a higher attempt.
    Retry,
    /// An operator decides.
    Hold,
}

/// What follows a definite failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailed {
    /// The next delivery forwards again.
    Retry,
    /// The failure's answer is replayed while it is remembered.
    Replay,
    /// As `Retry` until `max_attempts`, then an operator decides.
    DeadLetter,
}

/// What happens when the store cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreDown {
    /// 503: nothing is forwarded.
    Reject,
    /// Forwarded without dedupe, and counted.
    Forward,
}

/// What happens when the plugin fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPluginFailure {
    /// 503.
    Reject,
    /// Forwarded without dedupe, only when the sender was verified before.
    Forward,
    /// The previous version runs instead.
    Previous,
}

/// Whether requests that wait for a person are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRequest {
    /// Never.
    Never,
    /// When the event is held or quarantined.
    Attention,
}

/// What of an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// How much of the body.
    pub body: ReplayBody,
    /// The longest body that is kept, in bytes.
    pub max_body: usize,
    /// Fields that are not kept, lower case.
    pub drop_headers: Vec<String>,
    /// JSON pointers removed from the body before it is kept.
    pub redact: Vec<String>,
    /// The JSON pointer to the id of what the upstream made, for [`ReplayBody::Reference`].
    pub resource_id: String,
}

/// How much of an answer's body is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayBody {
    /// All of it.
    Full,
    /// Only the id of what the upstream made.
    Reference,
    /// Nothing.
    None,
}

/// The statuses that are kept as success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalStatuses {
    rules: Vec<StatusRule>,
}

/// One entry of `final`: a range of statuses with exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusRule {
    first: u16,
    last: u16,
    except: Vec<u16>,
}

/// An entry of `final` that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a status rule; write \"2xx\", \"404\" or \"4xx except 408 425 429\"")]
pub struct BadStatusRule(String);

impl FinalStatuses {
    /// From the entries of `final`.
    ///
    /// # Errors
    /// [`BadStatusRule`] names the first entry that is no rule.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, BadStatusRule> {
        let rules = entries.into_iter().map(StatusRule::parse).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Whether an answer with this status is kept.
    pub fn contains(&self, status: u16) -> bool {
        self.rules.iter().any(|rule| (rule.first..=rule.last).contains(&status) && !rule.except.contains(&status))
    }
}

impl StatusRule {
    fn parse(entry: &str) -> Result<Self, BadStatusRule> {
        let bad = || BadStatusRule(entry.to_owned());
        let (range, except) = entry.split_once(" except ").unwrap_or((entry, ""));
        let range = range.trim();
        let (first, last) = match range.strip_suffix("xx") {
            Some(class) => match class.parse::<u16>() {
                Ok(class @ 2..=5) => (class * 100, class * 100 + 99),
                _ => return Err(bad()),
            },
            None => {
                let status = status(range).ok_or_else(bad)?;
                (status, status)
            }
        };
        let except = except
            .split_whitespace()
            .map(|word| status(word).filter(|code| (first..=last).contains(code)).ok_or_else(bad))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { first, last, except })
    }
}

/// A final status code: 1xx never ends an exchange.
fn status(word: &str) -> Option<u16> {
    word.parse().ok().filter(|code| (200..=599).contains(code))
}
