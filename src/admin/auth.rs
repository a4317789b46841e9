//! Who asks, and whether that one may see the path at all.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use crate::config::model::{Token, TokenScope};

use super::{Api, Problem};

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// For the audit.
    pub name: String,
    scope: TokenScope,
}

impl Caller {
    /// Whether this tenant is any of the caller's business.
    pub fn sees(&self, tenant: &str) -> bool {
        match &self.scope {
            TokenScope::Operator => true,
            TokenScope::Tenant(own) => own == tenant,
        }
    }
}

/// Lets through what needs no token and what the token may see. Decided by the path alone, before it is routed: another tenant's
/// paths, methods and events all look alike.
pub(super) async fn gate(State(api): State<Api>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let path = request.uri().path();
    if path != "/v1" && !path.starts_with("/v1/") {
        return Ok(next.run(request).await);
    }
    let presented = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let caller = presented.and_then(|token| known(&api.tokens, token)).ok_or(Problem::Unauthorized)?;
    if let Some(rest) = path.strip_prefix("/v1/tenants/") {
        let tenant = percent_decode_str(rest.split('/').next().unwrap_or_default()).decode_utf8_lossy();
        if api.desk.tenant(&tenant).is_none() || !caller.sees(&tenant) {
            return Err(Problem::NotFound);
        }
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// The token of an `Authorization` field.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii()).filter(|token| !token.is_empty())
}

/// Whose token it is. Every digest is compared, each in constant time, so that the time taken says nothing.
fn known(tokens: &[Token], presented: &[u8]) -> Option<Caller> {
    let digest: [u8; 32] = Sha256::digest(presented).into();
    tokens.iter().fold(None, |found, token| {
        let equal = verify_slices_are_equal(&token.sha256, &digest).is_ok();
        if equal { Some(Caller { name: token.name.clone(), scope: token.scope.clone() }) } else { found }
    })
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // The gate has put it there.
        parts.extensions.get::<Self>().cloned().ok_or(Problem::Unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, text: &str, scope: TokenScope) -> Token {
        Token { name: name.to_owned(), sha256: Sha256::digest(text).into(), scope }
    }

    #[test]
    fn a_token_is_found_wherever_it_stands() {
        let tokens = [
            token("ops", "a", TokenScope::Operator),
            token("ci", "b", TokenScope::Tenant("acme".to_owned())),
            token("other", "c", TokenScope::Operator),
        ];
        let name = |text: &str| known(&tokens, text.as_bytes()).map(|caller| caller.name);
        assert_eq!(
            (name("a").as_deref(), name("b").as_deref(), name("c").as_deref()),
            (Some("ops"), Some("ci"), Some("other"))
        );
        assert_eq!((name("d"), name("")), (None, None));
        let ci = known(&tokens, b"b").unwrap();
        assert!(ci.sees("acme") && !ci.sees("acme2"));
    }

    #[test]
    fn the_scheme_is_read_in_any_case() {
        assert_eq!(bearer(b"bEARER  x "), Some(&b"x"[..]));
        for none in [&b"Basic eDp4"[..], b"Bearer ", b"Bearer", b"x", b""] {
            assert_eq!(bearer(none), None);
        }
    }
}
