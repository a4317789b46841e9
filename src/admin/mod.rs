//! The admin listener: health, metrics, and the operators' API. It is never on the ingest port.
//!
//! Invariants: nothing under `/v1` is answered without a token; a tenant's token learns nothing of another tenant, not even whether
//! it exists.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use tower_service::Service;

use crate::config::model::Token;
use crate::deploy::Desk;
use crate::gateway::{Body, Gateway, breaker};
use crate::telemetry::metrics::{self, Metrics};

mod auth;
mod captures;
mod events;
mod health;
mod openapi;
mod plugin_views;
mod plugins;
mod problem;
mod query;
mod refused;
mod replays;
mod routes;
mod uploads;
mod verbs;

pub use health::Health;
pub use problem::Problem;

/// What the listener serves from.
#[derive(Clone)]
pub struct Api {
    /// The gateway of the listener's own runtime.
    pub gateway: Arc<Gateway>,
    /// Tenants' plugins.
    pub desk: Desk,
    /// Whether this process should get traffic.
    pub health: Health,
    /// Who may use the API.
    pub tokens: Arc<[Token]>,
    /// What the process has measured.
    pub metrics: Metrics,
}

impl Api {
    /// Answers one request.
    pub fn handler(self) -> impl Fn(http::Request<Body>) -> BoxFuture<'static, http::Response<Body>> + Send + Sync {
        let router = self.router();
        move |request| {
            let mut router = router.clone();
            async move {
                let answer: Result<Response, Infallible> = router.call(request).await;
                let Ok(response) = answer;
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
            .boxed()
        }
    }

    fn router(self) -> Router {
        let event = "/v1/tenants/{tenant}/events/{scope}/{key}";
        let verb = |name: &str| format!("{event}/{name}");
        let plugin = "/v1/tenants/{tenant}/plugins/{plugin}";
        let plugin_verb = |name: &str| format!("{plugin}/{name}");
        Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(measured))
            .route("/v1/openapi.json", get(openapi::document))
            .route("/v1/routes", get(routes::list))
            .route("/v1/tenants/{tenant}/events", get(events::list))
            .route(event, get(events::show))
            .route(&verb("release"), post(verbs::release))
            .route(&verb("succeed"), post(verbs::succeed))
            .route(&verb("redeliver"), post(verbs::redeliver))
            .route("/v1/tenants/{tenant}/routes/{route}/captures", delete(captures::erase))
            .route("/v1/tenants/{tenant}/plugins", get(plugins::list))
            .route(plugin, get(plugins::show))
            .route(&plugin_verb("versions"), post(uploads::upload).layer(DefaultBodyLimit::max(uploads::BODY_MAX)))
            .route(&plugin_verb("activate"), post(plugins::activate))
            .route(&plugin_verb("rollback"), post(plugins::rollback))
            .route(&plugin_verb("test"), post(plugins::test))
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::method_not_allowed)
            // Outermost, so that who may not see a path does not learn which methods it has either.
            .layer(from_fn_with_state(self.clone(), auth::gate))
            .with_state(self)
    }
}

/// What the process has measured.
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "Prometheus text.")))]
async fn measured(State(api): State<Api>) -> impl IntoResponse {
    api.gateway.routes.all().iter().for_each(|route| route.meters.refresh());
    breaker::refresh(&api.gateway.routes);
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], api.metrics.render())
}
