//! What operators do with events: look, release, call done, send again. The rules are `idempotency::operator`'s; races are decided
//! by the store's swap.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::event::{KeyKind, ScopeKey, StoredResponse, Timestamp};
use crate::idempotency::history::Verb;
use crate::idempotency::machine::Me;
use crate::idempotency::operator::{self, Refusal};
use crate::idempotency::{Claim, Draft, Expect, Owner, Plan, Record};
use crate::store::{Entry, Filter, Listed, Seen, StoreError, Swap};

use super::Gateway;
use super::admission::{Admitted, wall_clock_ms};
use super::audit;
use super::dedupe::{Begin, Held, Item};
use super::explain::{Explanation, explain};
use super::identity::Identity;
use super::keep;
use super::rejection::Rejection;
use super::reply::Reply;
use super::route::Route;
use super::trail::Trail;

/// Which event, and who asks.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The name of the operator's token.
    pub by: &'a str,
    /// Whose event.
    pub tenant: &'a str,
    /// Where its key lives.
    pub scope: &'a str,
    /// Readable.
    pub key: &'a str,
    /// The plugin's key namespace, needed when the key stands in several.
    pub namespace: Option<&'a str>,
}

/// Why an operator's wish was not done.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    /// No such event, or no route that it could belong to.
    #[error("nothing is stored under this key")]
    Absent,
    /// The key stands in several namespaces.
    #[error("several plugins' key namespaces hold this key: {}; name one with ?namespace=", .0.join(", "))]
    Several(Vec<String>),
    /// The rules are against it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Somebody else changed the event at the same time, twice.
    #[error("the event changed meanwhile; look at it again")]
    Changed,
    /// The kept request cannot be sent.
    #[error("{0}")]
    Unsendable(String),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotDone {
    const fn word(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Several(_) => "several",
            Self::Refused(_) => "refused",
            Self::Changed => "changed",
            Self::Unsendable(_) => "unsendable",
            Self::Store(_) => "store-error",
        }
    }
}

/// What a redelivery came to.
#[derive(Debug)]
pub struct Redelivered {
    /// The attempt's id.
    pub event: String,
    /// As the log's `decision`.
    pub outcome: &'static str,
    /// What the upstream answered.
    pub upstream_status: Option<u16>,
    /// What stands in the store now.
    pub state: &'static str,
}

impl Gateway {
    /// Whether the store answers and can be written to.
    ///
    /// # Errors
    /// When it does not, or cannot.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.dedupe.store.ping().await
    }

    /// A tenant's events, newest first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn events(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        self.dedupe.store.list(tenant, filter).await
    }

    /// What is known of an event.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn explain(&self, tenant: &str, scope: &str, key: &str) -> Result<Option<Explanation>, StoreError> {
        let policy_of = |route: &str| self.route_of(tenant, scope, route).map(|route| &*route.config);
        explain(&*self.dedupe.store, (tenant, scope, key), policy_of).await
    }

    /// The next delivery may claim the event, whatever it holds.
    ///
    /// # Errors
    /// [`NotDone`]
    pub async fn release(&self, wish: Wish<'_>) -> Result<(), NotDone> {
        let by = wish.by;
        self.change(wish, Verb::Release, |record, now, route| operator::release(record, by, now, &route.config.policy))
            .await
    }

    /// The event counts as done, and this is its answer.
    ///
    /// # Errors
    /// [`NotDone`]
    pub async fn succeed(&self, wish: Wish<'_>, response: StoredResponse) -> Result<(), NotDone> {
        let by = wish.by;
        self.change(wish, Verb::Succeed, |record, now, route| {
            operator::succeed(record, response.clone(), by, now, &route.config.policy)
        })
        .await
    }

    /// Sends the kept request again, as a new attempt.
    ///
    /// # Errors
    /// [`NotDone`]; once the attempt is made, its outcome is no error here.
    pub async fn redeliver(self: &Arc<Self>, wish: Wish<'_>) -> Result<Redelivered, NotDone> {
        let found = self.find(wish).await;
        let key = found.as_ref().map_or_else(|_| wish.named(), |entry| entry.key.clone());
        let claimed = match found {
            Ok(entry) => self.claim_again(wish, entry).await,
            Err(why) => Err(why),
        };
        match claimed {
            Ok((admitted, held)) => {
                audit::operator(wish.by, &key, Verb::Redeliver, "claimed", Some(&held.claim));
                let done = self.send_again(&admitted, held).await;
                self.dedupe.shared.waiters.wake(&key.digest());
                done
            }
            Err(why) => {
                audit::operator(wish.by, &key, Verb::Redeliver, why.word(), None);
                Err(why)
            }
        }
    }

    /// One write over what stands, by a rule. When somebody else was faster the rule is asked once more.
    async fn change(
        &self,
        wish: Wish<'_>,
        verb: Verb,
        rule: impl Fn(&Record, Timestamp, &Route) -> Result<(Expect, Draft), Refusal>,
    ) -> Result<(), NotDone> {
        let found = self.find(wish).await;
        let key = found.as_ref().map_or_else(|_| wish.named(), |entry| entry.key.clone());
        let result = match found {
            Ok(entry) => self.write(wish, &entry, rule).await,
            Err(why) => Err(why),
        };
        match &result {
            Ok(record) => {
                audit::operator(wish.by, &key, verb, "done", Some(&Claim::of(record)));
                self.dedupe.shared.waiters.wake(&key.digest());
            }
            Err(why) => audit::operator(wish.by, &key, verb, why.word(), None),
        }
        result.map(|_| ())
    }

    async fn write(
        &self,
        wish: Wish<'_>,
        entry: &Entry,
        rule: impl Fn(&Record, Timestamp, &Route) -> Result<(Expect, Draft), Refusal>,
    ) -> Result<Record, NotDone> {
        let route = self.route_of(wish.tenant, wish.scope, &entry.record.route).ok_or(NotDone::Absent)?;
        let mut seen = self.dedupe.store.peek(&entry.key).await?;
        for _ in 0..2 {
            let Seen { current: Some(record), now } = seen else { return Err(NotDone::Absent) };
            let (expect, draft) = rule(&record, now, route)?;
            match self.dedupe.store.swap(&entry.key, expect, &draft).await? {
                Swap::Done(record) => return Ok(*record),
                Swap::Refused(met) => seen = *met,
            }
        }
        Err(NotDone::Changed)
    }

    /// The claim of a redelivery, and what is to be sent.
    async fn claim_again(&self, wish: Wish<'_>, entry: Entry) -> Result<(Admitted, Held), NotDone> {
        let route = self.route_of(wish.tenant, wish.scope, &entry.record.route).ok_or(NotDone::Absent)?;
        let owner = Owner(super::trail::event_id(wall_clock_ms()));
        let mut seen = self.dedupe.store.peek(&entry.key).await?;
        for _ in 0..2 {
            let Seen { current: Some(record), now } = seen else { return Err(NotDone::Absent) };
            let plan = operator::redeliver(&record, wish.by, now)?;
            let admitted = restore(route, record.request.as_deref().unwrap_or_default())?;
            let before = Some(record.state.status());
            let draft = self.draft_again(&plan, &owner, &record, route);
            let since = Instant::now();
            match self.dedupe.store.swap(&entry.key, plan.expect, &draft).await {
                Ok(Swap::Done(record)) => {
                    self.dedupe.raise_floor(record.fence);
                    return Ok((admitted, Held { key: entry.key, claim: Claim::of(&record), before, since }));
                }
                Ok(Swap::Refused(met)) => seen = *met,
                Err(error) => {
                    if error.may_be_applied() {
                        self.dedupe.give_back_if_found(owner, entry.key, route.config.policy.clone());
                    }
                    return Err(error.into());
                }
            }
        }
        Err(NotDone::Changed)
    }

    fn draft_again(&self, plan: &Plan, owner: &Owner, record: &Record, route: &Route) -> Draft {
        let me = Me { owner, fingerprint: &record.fingerprint, plugin: &record.plugin, route: &record.route };
        let draft = plan.draft(&me, self.dedupe.shared.floor.load(Ordering::Relaxed), &route.config.policy);
        // Kept until it succeeds: this attempt may fail too.
        Draft { request: record.request.clone(), ..draft }
    }

    /// The attempt itself: the same way as a delivery's, from its claim on.
    async fn send_again(self: &Arc<Self>, admitted: &Admitted, held: Held) -> Result<Redelivered, NotDone> {
        let mut trail = Trail::of(held.claim.owner.0.clone(), Arc::clone(&admitted.route.meters));
        trail.routed(&admitted.route);
        trail.identified(held.key.readable());
        let ids = [Identity::named(held.key.clone(), held.claim.plugin.clone())];
        let begin = Begin::Fresh(vec![Item::First(Box::new(held))]);
        trail.decided(&begin);
        let Begin::Fresh(items) = begin else { return Err(NotDone::Changed) };
        let result: Result<Reply, Rejection> = self.complete(admitted, &ids, items, &mut trail).await;
        trail.log(&result);
        let outcome = match &result {
            Ok(reply) => reply.idempotency.as_str(),
            Err(rejection) => rejection.code(),
        };
        Ok(Redelivered {
            event: trail.event.clone(),
            outcome,
            upstream_status: trail.upstream_status(),
            state: trail.state_after(),
        })
    }

    async fn find(&self, wish: Wish<'_>) -> Result<Entry, NotDone> {
        let mut found = self.dedupe.store.find(wish.tenant, wish.scope, wish.key).await?;
        if let Some(namespace) = wish.namespace {
            found.retain(|entry| entry.key.namespace == namespace);
        }
        match found.len() {
            0 | 1 => found.pop().ok_or(NotDone::Absent),
            _ => Err(NotDone::Several(found.into_iter().map(|entry| format!("\"{}\"", entry.key.namespace)).collect())),
        }
    }

    /// The route whose policy an event has: the one it came by, or another one of its scope.
    fn route_of(&self, tenant: &str, scope: &str, name: &str) -> Option<&Arc<Route>> {
        let of_scope = |route: &&Arc<Route>| route.config.tenant == tenant && route.config.scope == scope;
        let named = self.routes.named(tenant, name).filter(of_scope);
        named.or_else(|| self.routes.all().iter().find(of_scope))
    }
}

impl Wish<'_> {
    /// The key as it was named, for the audit of what was not found.
    fn named(&self) -> ScopeKey {
        ScopeKey {
            tenant: self.tenant.to_owned(),
            scope: self.scope.to_owned(),
            namespace: self.namespace.unwrap_or_default().to_owned(),
            kind: KeyKind::Key,
            parts: vec![self.key.to_owned()],
        }
    }
}

/// The delivery that was kept, as if it had just been let in.
///
/// # Errors
/// What an operator is told.
fn restore(route: &Arc<Route>, kept: &[u8]) -> Result<Admitted, NotDone> {
    let unsendable = |why: String| NotDone::Unsendable(format!("{why}; release the event, then let the sender resend"));
    let written = keep::read_back(kept).map_err(|why| unsendable(why.to_string()))?;
    match written.events {
        1 => match route.plugin.now() {
            Some(code) => Ok(written.into_admitted(Arc::clone(route), code)),
            None => Err(unsendable("its route has no active plugin".to_owned())),
        },
        // Sent under one event's key, it would carry the others along, which may have been forwarded.
        events => Err(unsendable(format!("the kept request carries {events} events"))),
    }
}
