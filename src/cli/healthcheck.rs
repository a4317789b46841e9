//! `onceward healthcheck`

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::{Done, out, runtime};

/// Longer than a store's own timeout, shorter than an orchestrator's patience.
const WAIT: Duration = Duration::from_secs(5);

/// Asks once.
pub fn run(url: &str) -> anyhow::Result<Done> {
    let request = Request::get(url).body(Empty::<Bytes>::new()).with_context(|| format!("`{url}` is no URL"))?;
    runtime()?.block_on(async {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let asking = async {
            let answer = client.request(request).await?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), 64 * 1024).collect().await.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((status, body.to_bytes()))
        };
        match tokio::time::timeout(WAIT, asking).await {
            Ok(Ok((status, body))) => {
                out(&format!("{}\n", String::from_utf8_lossy(&body).trim_end()))?;
                Ok(if status.is_success() { Done::Ok } else { Done::Faults })
            }
            Ok(Err(error)) => {
                out(&format!("not ready: {url} does not answer: {error}\n"))?;
                Ok(Done::Faults)
            }
            Err(_) => {
                out(&format!("not ready: {url} did not answer within {} s\n", WAIT.as_secs()))?;
                Ok(Done::Faults)
            }
        }
    })
}
