//! `GET /v1/routes`

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::config::model::{Mode, PluginRef};
use crate::gateway::route::Route;

use super::Api;
use super::auth::Caller;

/// The routes that the token may see.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RouteList {
    routes: Vec<RouteView>,
}

/// One route.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RouteView {
    tenant: String,
    name: String,
    path: String,
    methods: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// As the configuration names it.
    plugin: String,
    /// Of code and config; none while the tenant has no active version.
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_version: Option<String>,
    scope: String,
    /// The plugin's key namespace, mostly empty.
    namespace: String,
    upstream: String,
    /// `dedupe` or `observe`.
    mode: &'static str,
    window_seconds: u64,
    lease_seconds: f64,
}

/// The routes, in the configuration's order.
#[utoipa::path(get, path = "/v1/routes", responses(
    (status = 200, description = "The routes that the token may see.", body = RouteList),
    (status = 401, description = "No token."),
), security(("bearer" = [])))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Json<RouteList> {
    let seen = api.gateway.routes.all().iter().filter(|route| caller.sees(&route.config.tenant));
    Json(RouteList { routes: seen.map(|route| view(route)).collect() })
}

fn view(route: &Route) -> RouteView {
    let config = &route.config;
    let code = route.plugin.now();
    RouteView {
        tenant: config.tenant.clone(),
        name: config.name.clone(),
        path: config.path.clone(),
        methods: config.methods.iter().map(ToString::to_string).collect(),
        host: config.host.clone(),
        plugin: match &config.plugin {
            PluginRef::Bundled(name) => name.clone(),
            PluginRef::Uploaded { tenant, name } => format!("{tenant}/{name}"),
            PluginRef::File(path) => format!("file:{}", path.display()),
        },
        plugin_version: code.as_ref().map(|code| code.active.version.version.clone()),
        scope: config.scope.clone(),
        namespace: code.as_ref().map_or_else(String::new, |code| code.active.space.namespace.clone()),
        upstream: config.upstream.clone(),
        mode: match config.mode {
            Mode::Dedupe => "dedupe",
            Mode::Observe => "observe",
        },
        window_seconds: config.policy.window.as_secs(),
        lease_seconds: config.policy.lease.as_secs_f64(),
    }
}
