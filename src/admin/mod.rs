//! The admin listener: health for load balancers and containers. It is never on the ingest port.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::store::Store;

/// Whether this gateway should get traffic.
#[derive(Clone)]
pub struct Health {
    store: Arc<dyn Store>,
    draining: Arc<AtomicBool>,
}

impl Health {
    /// Over the admin runtime's own store handle.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, draining: Arc::default() }
    }

    /// From now on not ready.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Why it should get none; empty when it should.
    async fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.draining.load(Ordering::Relaxed) {
            reasons.push("draining".to_owned());
        }
        if let Err(error) = self.store.ping().await {
            // The detail may name an address: it is for the log.
            tracing::debug!(%error, "not ready");
            reasons.push(format!("the store {}", error.kind));
        }
        reasons
    }
}

/// Serves until the task is aborted.
///
/// # Errors
/// When the socket cannot be used.
pub fn serve(listener: TcpListener, health: Health) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let app = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health);
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "the admin listener ended");
        }
    }))
}

/// Alive: the process answers.
async fn healthz() -> impl IntoResponse {
    Json(json!({ "status": "ok" }))
}

/// Ready: deliveries can be decided now.
async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let reasons = health.reasons().await;
    if reasons.is_empty() {
        (StatusCode::OK, Json(json!({ "status": "ready" })))
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "not-ready", "reasons": reasons })))
    }
}
