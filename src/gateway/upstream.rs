//! The upstream services of one data-plane core: a connection pool each, and the built-in echo service.

mod strict;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::json;
use tower_service::Service;

use crate::config::model::{Target, Upstream as Settings};
use crate::config::refused_address;

use super::reply::full;
use super::{Body, BoxError};
use strict::Strict;

/// Most idle connections kept to one upstream by one core.
const IDLE_MAX: usize = 256;

/// The upstreams of one core, by name.
#[derive(Clone)]
pub struct Upstreams {
    by_name: Arc<HashMap<String, Upstream>>,
}

/// One upstream service.
#[derive(Clone)]
pub struct Upstream {
    /// As configured.
    pub settings: Arc<Settings>,
    pool: Pool,
}

#[derive(Clone)]
enum Pool {
    Echo,
    Http(Box<Client<Dialler, Full<Bytes>>>),
}

/// Why an exchange has no answer's head.
#[derive(Debug, thiserror::Error)]
pub enum SendFault {
    /// No connection: no byte was sent.
    #[error("no connection: {0}")]
    Unsent(String),
    /// A connection was there, so bytes may have been sent.
    #[error("the exchange broke: {0}")]
    Broken(String),
}

impl Upstreams {
    /// A pool for each configured upstream. Called once a core, on the core's own runtime.
    pub fn new(settings: &BTreeMap<String, Arc<Settings>>) -> Self {
        let mut by_name = HashMap::new();
        for (name, settings) in settings {
            let pool = match settings.target {
                Target::Echo => Pool::Echo,
                Target::Http { .. } => Pool::Http(Box::new(client(settings))),
            };
            by_name.insert(name.clone(), Upstream { settings: Arc::clone(settings), pool });
        }
        Self { by_name: Arc::new(by_name) }
    }

    /// By the name that routes use.
    pub fn get(&self, name: &str) -> Option<&Upstream> {
        self.by_name.get(name)
    }
}

impl Upstream {
    /// Sends a request and waits for the answer's head. The caller owns the deadline.
    ///
    /// # Errors
    /// [`SendFault`] says whether a byte may have been sent. A request is sent once: only one that met a pooled connection which
    /// was closed before anything was written is sent on a fresh one.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, SendFault> {
        match &self.pool {
            Pool::Echo => Ok(echo(request).await),
            Pool::Http(client) => match client.request(request).await {
                Ok(response) => {
                    Ok(response.map(|body| body.map_err(|error| -> BoxError { Box::new(error) }).boxed_unsync()))
                }
                Err(error) if error.is_connect() => Err(SendFault::Unsent(chain(&error))),
                Err(error) => Err(SendFault::Broken(chain(&error))),
            },
        }
    }
}

fn client(settings: &Settings) -> Client<Dialler, Full<Bytes>> {
    let mut tcp = HttpConnector::new_with_resolver(Guarded(GaiResolver::new()));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots());
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle_timeout)
        .pool_max_idle_per_host(IDLE_MAX)
        .set_host(false)
        .build(Dialler { https, within: connect_within(settings) })
}

/// Below the whole forward's time in any case: a connection that never came must not look like an exchange that was cut off.
fn connect_within(settings: &Settings) -> Duration {
    settings.connect_timeout.min(settings.timeout - settings.timeout / 10)
}

/// The public roots, and what the system trusts beside them: a private authority is added there, or named by `SSL_CERT_FILE`.
fn roots() -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let (_, unusable) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if unusable > 0 {
        tracing::debug!(unusable, "some of the system's root certificates cannot be used");
    }
    roots
}

/// Connects, TLS included, within the upstream's connect timeout: so that a peer which accepts and says nothing counts as
/// unreachable, and not as an exchange whose outcome nobody knows.
#[derive(Clone)]
struct Dialler {
    https: HttpsConnector<HttpConnector<Guarded>>,
    within: Duration,
}

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl Service<Uri> for Dialler {
    type Response = TokioIo<Strict<TokioIo<<HttpsConnector<HttpConnector<Guarded>> as Service<Uri>>::Response>>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let within = self.within;
        let connecting = self.https.call(uri);
        Box::pin(async move {
            let connected = tokio::time::timeout(within, connecting)
                .await
                .unwrap_or_else(|_| Err(format!("no connection within {within:?}").into()))?;
            Ok(TokioIo::new(Strict::new(TokioIo::new(connected))))
        })
    }
}

/// Resolves names, and leaves out addresses that no upstream may have. The address that is dialled is the one that was checked.
#[derive(Clone)]
struct Guarded(GaiResolver);

impl Service<Name> for Guarded {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(|error| -> BoxError { Box::new(error) })
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = self.0.call(name);
        Box::pin(async move {
            let (allowed, refused): (Vec<_>, Vec<_>) =
                resolving.await?.partition(|address| refused_address(address.ip()).is_none());
            match (allowed.is_empty(), refused.first()) {
                (true, Some(address)) => {
                    Err(format!("the name resolves to {}, which no upstream may have", address.ip()).into())
                }
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Answers with what arrived, and with a number that only an actual call raises: a replay shows the old one.
async fn echo(request: Request<Full<Bytes>>) -> Response<Body> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    let (head, body) = request.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes().len(),
        Err(never) => match never {},
    };
    let say = |name: &str| text_of(&head.headers, name);
    let answer = json!({
        "echo": format!("{} {}", head.method, head.uri.path()),
        "call": call,
        "idempotency_key": say("idempotency-key"),
        "attempt": say("onceward-attempt"),
        "bytes": bytes,
    });
    let mut response = Response::new(full(Bytes::from(format!("{answer}\n"))));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
