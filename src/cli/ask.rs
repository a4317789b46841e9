//! One question to an admin listener.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::runtime;

/// A redelivery waits for the upstream.
const WAIT: Duration = Duration::from_secs(120);

/// The longest answer that is read.
const BODY_MAX: usize = 64 << 20;

/// What the API said.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its JSON.
    pub body: Value,
}

/// Asks once, with JSON.
pub fn ask(method: &Method, url: &str, token: &str, body: Option<Value>) -> anyhow::Result<Answer> {
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    send(method, url, token, "application/json", bytes)
}

/// Asks once, with any body.
pub fn send(method: &Method, url: &str, token: &str, kind: &str, body: Bytes) -> anyhow::Result<Answer> {
    let mut bearer =
        HeaderValue::try_from(format!("Bearer {token}")).context("the token holds what no token can hold")?;
    bearer.set_sensitive(true);
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header(AUTHORIZATION, bearer)
        .header(CONTENT_TYPE, kind)
        .body(Full::new(body))
        .with_context(|| format!("`{url}` is no URL"))?;
    runtime()?.block_on(async {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let asking = async {
            let answer = client.request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), BODY_MAX).collect().await.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let asked = tokio::time::timeout(WAIT, asking).await.context("no answer in time");
        let (status, body) = asked.and_then(|answer| answer).with_context(|| {
            format!("{url} does not answer; is the gateway running, and is --url its admin listener?")
        })?;
        let body = serde_json::from_slice(&body)
            .with_context(|| format!("{url} answered {status} without JSON; is --url the admin listener?"))?;
        Ok(Answer { status, body })
    })
}
