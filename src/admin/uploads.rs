//! `POST /v1/tenants/{tenant}/plugins/{plugin}/versions`

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};

use crate::config::is_name;
use crate::deploy::Refused;
use crate::deploy::case::Case;
use crate::deploy::desk::Doing;
use crate::deploy::gate::{CASE_BYTES_MAX, CASES_MAX, Unfit, Upload};
use crate::plugin::caps::BYTES_MAX;
use crate::plugin::registry::PluginId;

use super::auth::Caller;
use super::plugin_views::UploadedView;
use super::{Api, Problem};

/// The longest body: a plugin, its cases, and the lines between them.
pub(super) const BODY_MAX: usize = BYTES_MAX + CASE_BYTES_MAX + (256 << 10);

/// A component becomes a version of the plugin, if the gate lets it in. Nothing serves it until it is activated.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/plugins/{plugin}/versions", params(
    ("tenant" = String, Path, description = "Whose"),
    ("plugin" = String, Path, description = "Its name; the first upload makes it"),
), request_body(
    content(
        (Vec<u8> = "application/wasm"),
        (Vec<u8> = "multipart/form-data"),
    ),
    description = "The component; or a form with the part `plugin` and any number of parts `case`, each a case file that it must pass."
), responses(
    (status = 201, description = "It is a version now.", body = UploadedView),
    (status = 400, description = "A form that cannot be read, or a name that no plugin has."),
    (status = 401, description = "No token."),
    (status = 404, description = "No such tenant, or not for this token."),
    (status = 413, description = "More bytes than a plugin may have."),
    (status = 422, description = "It is refused: the detail says why and what to do; `cases` has those that failed."),
    (status = 429, description = "An upload of the tenant is under way, or limits.uploads is used up."),
    (status = 503, description = "The registry does not answer, or the compiler cannot run."),
), security(("bearer" = [])))]
pub(super) async fn upload(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, name)): Path<(String, String)>,
    request: Request,
) -> Result<(StatusCode, Json<UploadedView>), Problem> {
    if !is_name(&name) {
        return Err(Problem::BadParameter("plugin", "is a name: 1 to 63 of a-z, 0-9, _ and -".to_owned()));
    }
    let id = PluginId { tenant, name };
    let doing = Doing { by: &caller.name, id: &id };
    let turn = api.desk.begin(doing)?;
    let is_form = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/"));
    let upload = if is_form { form(request).await? } else { bare(request.into_body()).await? };
    let limits = api.desk.tenant(&id.tenant).ok_or(Problem::NotFound)?.limits;
    let done = api.desk.upload(turn, doing, upload).await?;
    Ok((StatusCode::CREATED, Json(UploadedView::of(&done, &limits))))
}

fn too_large() -> Problem {
    Problem::Refused(Refused::Unfit(Unfit::TooLarge(BYTES_MAX)))
}

async fn bare(body: Body) -> Result<Upload, Problem> {
    let wasm = to_bytes(body, BYTES_MAX).await.map_err(|_| too_large())?;
    Ok(Upload { wasm, cases: Vec::new() })
}

async fn form(request: Request) -> Result<Upload, Problem> {
    let bad = |error: MultipartError| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::BodyTooLarge,
        _ => Problem::BadBody(format!("The form cannot be read: {}.", error.body_text())),
    };
    let mut form =
        Multipart::from_request(request, &()).await.map_err(|refused| Problem::BadBody(refused.body_text()))?;
    let (mut wasm, mut cases, mut case_bytes) = (None, Vec::new(), 0);
    while let Some(field) = form.next_field().await.map_err(bad)? {
        match field.name() {
            Some("plugin") if wasm.is_none() => {
                wasm = Some(part(field, BYTES_MAX).await.map_err(bad)?.ok_or_else(too_large)?);
            }
            Some("case") if cases.len() < CASES_MAX => {
                let name = field.file_name().unwrap_or("case").to_owned();
                let bytes =
                    part(field, CASE_BYTES_MAX - case_bytes).await.map_err(bad)?.ok_or(Problem::BodyTooLarge)?;
                case_bytes += bytes.len();
                let case = Case::parse(&bytes);
                cases.push(case.map_err(|fault| Problem::BadBody(format!("{name:?} is not a case file: {fault}.")))?);
            }
            Some("case") => return Err(Problem::BadBody(format!("An upload has at most {CASES_MAX} cases."))),
            name => {
                let name = name.unwrap_or_default();
                return Err(Problem::BadBody(format!(
                    "The form has the part {name:?}; it has one `plugin` and any number of `case`."
                )));
            }
        }
    }
    let wasm = wasm.ok_or_else(|| Problem::BadBody("The form has no part `plugin`.".to_owned()))?;
    Ok(Upload { wasm, cases })
}

/// A part's bytes; none when they are more than `most`.
async fn part(mut field: Field<'_>, most: usize) -> Result<Option<Bytes>, MultipartError> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = field.chunk().await? {
        if chunk.len() > most - whole.len() {
            return Ok(None);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(Some(whole.freeze()))
}
