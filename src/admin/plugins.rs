//! `/v1/tenants/{tenant}/plugins`: what was uploaded, what serves, and how that changes.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::is_name;
use crate::deploy::case::Case;
use crate::deploy::desk::{Activated, Doing};
use crate::plugin::registry::PluginId;

use super::auth::Caller;
use super::plugin_views::{ActivatedView, DecisionView, PluginList, PluginView, digest};
use super::replays::ReplayView;
use super::{Api, Problem};

/// The longest body of a verb but `test`.
const BODY_MAX: usize = 64 << 10;
/// The longest body of `test`: a request of 1 MiB, encoded.
const CASE_MAX: usize = 4 << 20;

/// Which version to activate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Activate {
    /// 64 hex digits.
    digest: String,
    /// True: it runs beside the active version, to be compared, and nothing else changes.
    #[serde(default)]
    shadow: bool,
}

/// A request to run through a version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    /// 64 hex digits.
    digest: String,
    /// True, without a `request`: the requests that this replica has captured for the routes that name the plugin, compared with the
    /// active version.
    #[serde(default)]
    captured: bool,
    /// As a case file: `name`, `method`, `path`, `headers`, `body_base64`, `secrets`, `config`, `now`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    request: Option<serde_json::Value>,
}

/// What `test` found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Tested {
    /// Of one request.
    One(Box<DecisionView>),
    /// Of captured ones.
    Captured(Box<ReplayView>),
}

/// A tenant's plugins.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/plugins", params(
    ("tenant" = String, Path, description = "Whose"),
), responses(
    (status = 200, description = "Those that were uploaded, and those that routes name.", body = PluginList),
    (status = 401, description = "No token."),
    (status = 404, description = "No such tenant, or not for this token."),
    (status = 503, description = "The registry does not answer."),
), security(("bearer" = [])))]
pub(super) async fn list(State(api): State<Api>, Path(tenant): Path<String>) -> Result<Json<PluginList>, Problem> {
    let plugins = api.desk.list(&tenant).await?;
    let used = api.desk.code_used(&tenant).await?;
    let limits = api.desk.tenant(&tenant).ok_or(Problem::NotFound)?.limits;
    Ok(Json(PluginList::of(&plugins, used, &limits)))
}

/// One plugin with its versions.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/plugins/{plugin}", params(
    ("tenant" = String, Path, description = "Whose"),
    ("plugin" = String, Path, description = "Its name"),
), responses(
    (status = 200, description = "Its versions, newest first, and what serves.", body = PluginView),
    (status = 401, description = "No token."),
    (status = 404, description = "No such plugin, or not for this token."),
    (status = 503, description = "The registry does not answer."),
), security(("bearer" = [])))]
pub(super) async fn show(
    State(api): State<Api>,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<Json<PluginView>, Problem> {
    let found = api.desk.show(known(tenant, name)?).await?;
    Ok(Json(PluginView::of(&found)))
}

/// A version becomes the active one, on every gateway.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/plugins/{plugin}/activate", params(
    ("tenant" = String, Path, description = "Whose"),
    ("plugin" = String, Path, description = "Its name"),
), request_body = Activate, responses(
    (status = 200, description = "It is active; `serving` says whether this gateway serves it already.", body = ActivatedView),
    (status = 400, description = "A body that cannot be read."),
    (status = 401, description = "No token."),
    (status = 404, description = "No such version, or not for this token."),
    (status = 409, description = "It gives other keys than the active version under the same key namespace (`shadow`, `replay`: what was found); nothing is active that it could run beside; or other activations came first."),
    (status = 422, description = "A route's config does not fit it (`faults`, each with its key), or its code cannot be had."),
    (status = 503, description = "The registry does not answer."),
), security(("bearer" = [])))]
pub(super) async fn activate(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, name)): Path<(String, String)>,
    body: Body,
) -> Result<Json<ActivatedView>, Problem> {
    let wish: Activate = read(body, BODY_MAX).await?;
    let id = known(tenant, name)?;
    let doing = Doing { by: &caller.name, id: &id };
    let done: Activated = api.desk.activate(doing, digest(&wish.digest)?, wish.shadow).await?;
    Ok(Json(ActivatedView::of(&id, done)))
}

/// The version before the active one becomes active again.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/plugins/{plugin}/rollback", params(
    ("tenant" = String, Path, description = "Whose"),
    ("plugin" = String, Path, description = "Its name"),
), responses(
    (status = 200, description = "It is active; `serving` says whether this gateway serves it already.", body = ActivatedView),
    (status = 401, description = "No token."),
    (status = 404, description = "No such plugin, or not for this token."),
    (status = 409, description = "There is no previous version, or another activation came first."),
    (status = 422, description = "A route's config does not fit it (`faults`, each with its key), or its code cannot be had."),
    (status = 503, description = "The registry does not answer."),
), security(("bearer" = [])))]
pub(super) async fn rollback(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<Json<ActivatedView>, Problem> {
    let id = known(tenant, name)?;
    // What was never there is not found; what has no previous version is a conflict.
    api.desk.show(id.clone()).await?;
    let done = api.desk.roll_back(Doing { by: &caller.name, id: &id }).await?;
    Ok(Json(ActivatedView::of(&id, done)))
}

/// What a version makes of a request. Nothing is stored or forwarded.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/plugins/{plugin}/test", params(
    ("tenant" = String, Path, description = "Whose"),
    ("plugin" = String, Path, description = "Its name"),
), request_body = Test, responses(
    (status = 200, description = "The decision, and what it used of what a call may use; or how it differs from the active version.", body = Tested),
    (status = 400, description = "A body that cannot be read."),
    (status = 401, description = "No token."),
    (status = 404, description = "No such version, or not for this token."),
    (status = 422, description = "The version refuses the request's config, or its code cannot be had."),
    (status = 503, description = "The registry does not answer."),
), security(("bearer" = [])))]
pub(super) async fn test(
    State(api): State<Api>,
    Path((tenant, name)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Tested>, Problem> {
    let wish: Test = read(body, CASE_MAX).await?;
    let id = known(tenant, name)?;
    let request = match wish.request {
        None if wish.captured => {
            let found = api.desk.replay(&id, digest(&wish.digest)?).await?;
            return Ok(Json(Tested::Captured(Box::new(ReplayView::of(&found)))));
        }
        Some(request) if !wish.captured => request,
        _ => return Err(Problem::BadBody("Give `request`, or `captured`: true, not both.".to_owned())),
    };
    let case = Case::parse(request.to_string().as_bytes())
        .map_err(|fault| Problem::BadBody(format!("`request` is no case: {fault}.")))?;
    let inspected = api.desk.test(&id, digest(&wish.digest)?, &case).await?;
    Ok(Json(Tested::One(Box::new(DecisionView::of(&inspected)))))
}

/// A plugin that may exist.
pub(super) fn known(tenant: String, name: String) -> Result<PluginId, Problem> {
    if is_name(&name) { Ok(PluginId { tenant, name }) } else { Err(Problem::NotFound) }
}

async fn read<T: serde::de::DeserializeOwned>(body: Body, most: usize) -> Result<T, Problem> {
    let body = to_bytes(body, most).await.map_err(|_| Problem::BodyTooLarge)?;
    match body.trim_ascii() {
        // A list of values would be read as the members in their order.
        json @ [b'{', ..] => serde_json::from_slice(json)
            .map_err(|error| Problem::BadBody(format!("The body is no JSON as expected: {error}."))),
        _ => Err(Problem::BadBody("The body is a JSON object.".to_owned())),
    }
}
