//! `GET /v1/tenants/{tenant}/events` and one event of it.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::event::Timestamp;
use crate::gateway::admission::wall_clock_ms;
use crate::gateway::explain::{EventView, Explanation};
use crate::gateway::rfc3339;

use super::{Api, Problem, query};

/// A tenant's events, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventList {
    events: Vec<EventView>,
    /// There are, or may be, more than these.
    more: bool,
    /// The store's time.
    now: String,
}

/// A tenant's events, newest first.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/events", params(
    ("tenant" = String, Path, description = "Whose"),
    ("route" = Option<String>, Query, description = "Of this route only"),
    ("state" = Option<String>, Query, description = "processing, succeeded, failed, unknown or mismatch"),
    ("since" = Option<String>, Query, description = "RFC 3339, Unix seconds, or how long ago: 90s, 15m, 1h, 7d"),
    ("limit" = Option<usize>, Query, description = "1 to 1000; 100 without it"),
), responses(
    (status = 200, description = "Newest first.", body = EventList),
    (status = 400, description = "A parameter that cannot be read, by its name."),
    (status = 401, description = "No token."),
    (status = 404, description = "No such tenant or route, or not for this token."),
), security(("bearer" = [])))]
pub(super) async fn list(
    State(api): State<Api>,
    Path(tenant): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<EventList>, Problem> {
    let now = Timestamp::from_micros(wall_clock_ms().saturating_mul(1000));
    let filter = query::filter(query.as_deref().unwrap_or_default(), now)?;
    if let Some(route) = &filter.route
        && api.gateway.routes.named(&tenant, route).is_none()
    {
        return Err(Problem::NotFound);
    }
    let listed = api.gateway.events(&tenant, &filter).await?;
    Ok(Json(EventList {
        events: listed.entries.iter().map(|entry| EventView::of(&entry.key, &entry.record)).collect(),
        more: listed.more,
        now: rfc3339::write(listed.now),
    }))
}

/// All that is known of an event, and what its next delivery would get.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/events/{scope}/{key}", params(
    ("tenant" = String, Path, description = "Whose"),
    ("scope" = String, Path, description = "Where its key lives: the route's scope, which is its name unless configured"),
    ("key" = String, Path, description = "Readable: parts joined by `|` with `\\` escapes, or `sha256-…`; percent-encoded"),
), responses(
    (status = 200, description = "What `onceward explain` prints.", body = Explanation),
    (status = 401, description = "No token."),
    (status = 404, description = "No such event, or not for this token."),
), security(("bearer" = [])))]
pub(super) async fn show(
    State(api): State<Api>,
    Path((tenant, scope, key)): Path<(String, String, String)>,
) -> Result<Json<Explanation>, Problem> {
    api.gateway.explain(&tenant, &scope, &key).await?.map(Json).ok_or(Problem::NotFound)
}
