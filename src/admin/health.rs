//! Whether the process lives, and whether it should get traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::json;

use crate::gateway::breaker;
use crate::gateway::watch::Standing;

use super::Api;

/// What is known of the process apart from its store.
#[derive(Clone)]
pub struct Health {
    draining: Arc<AtomicBool>,
    standing: Standing,
}

impl Health {
    /// With what the watch finds.
    pub fn new(standing: Standing) -> Self {
        Self { draining: Arc::default(), standing }
    }

    /// From now on not ready.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// Alive: the process answers.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "The process answers.")))]
pub(super) async fn healthz() -> impl IntoResponse {
    Json(json!({ "status": "ok" }))
}

/// Ready: deliveries can be decided now.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, description = "`ready`, or `degraded` with its reasons where serving goes on."),
    (status = 503, description = "`not-ready`, with its reasons: draining, or the store cannot be used."),
))]
pub(super) async fn readyz(State(api): State<Api>) -> impl IntoResponse {
    let found = api.health.standing.reasons();
    let mut unready = Vec::new();
    if api.health.draining.load(Ordering::Relaxed) {
        unready.push("draining".to_owned());
    }
    if let Err(error) = api.gateway.ping().await {
        // The detail may name an address: it is for the log.
        tracing::debug!(%error, "not ready");
        unready.push(format!("the store {}", error.kind));
    }
    unready.extend(found.unready.iter().cloned());
    let mut degraded = found.degraded.clone();
    degraded.extend(breaker::reasons(&api.gateway.routes));
    let say = |status, reasons: Vec<String>| Json(json!({ "status": status, "reasons": reasons }));
    if !unready.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, say("not-ready", unready));
    }
    degraded.extend(api.desk.concerns());
    if degraded.is_empty() {
        (StatusCode::OK, Json(json!({ "status": "ready" })))
    } else {
        (StatusCode::OK, say("degraded", degraded))
    }
}
