//! `GET /v1/openapi.json`: made from the handlers' own attributes.

use axum::Json;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{captures, events, health, plugins, routes, uploads, verbs};

#[derive(OpenApi)]
#[openapi(
    info(title = "Onceward admin API", description = "Health, routes, events with what operators may do to them, and tenants' plugins."),
    paths(
        health::healthz,
        health::readyz,
        super::measured,
        document,
        routes::list,
        events::list,
        events::show,
        verbs::release,
        verbs::succeed,
        verbs::redeliver,
        captures::erase,
        plugins::list,
        plugins::show,
        uploads::upload,
        plugins::activate,
        plugins::rollback,
        plugins::test,
    ),
    modifiers(&Bearer)
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// The API, described.
#[utoipa::path(get, path = "/v1/openapi.json", responses(
    (status = 200, description = "This document."),
    (status = 401, description = "No token."),
), security(("bearer" = [])))]
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
