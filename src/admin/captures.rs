//! `DELETE /v1/tenants/{tenant}/routes/{route}/captures`

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::gateway::audit;

use super::auth::Caller;
use super::{Api, Problem};

/// What was deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Erased {
    /// Requests. Those of other replicas are still there.
    erased: usize,
}

/// Deletes what a route has captured on this replica's machine. It goes on capturing as its configuration says.
#[utoipa::path(delete, path = "/v1/tenants/{tenant}/routes/{route}/captures", params(
    ("tenant" = String, Path, description = "Whose"),
    ("route" = String, Path, description = "The route's name"),
), responses(
    (status = 200, description = "None is left on this replica.", body = Erased),
    (status = 401, description = "No token."),
    (status = 404, description = "No such route, or not for this token."),
    (status = 500, description = "Files could not be deleted: the log says which."),
), security(("bearer" = [])))]
pub(super) async fn erase(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, route)): Path<(String, String)>,
) -> Result<Json<Erased>, Problem> {
    if api.gateway.routes.named(&tenant, &route).is_none() {
        return Err(Problem::NotFound);
    }
    match api.gateway.captures.erase(&tenant, &route).await {
        Ok(erased) => {
            audit::captures_erased(&caller.name, &tenant, &route, erased);
            Ok(Json(Erased { erased }))
        }
        Err(error) => {
            tracing::error!(tenant, route, %error, "captured requests could not be deleted");
            Err(Problem::Internal)
        }
    }
}
