//! The smallest server that speaks enough of S3: objects in memory, created once where the request says so, listed in pages of two.
//! It checks that requests are signed, not by whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use percent_encoding::percent_decode_str;

type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// A running server; it ends with the guard.
pub struct S3 {
    port: u16,
    objects: Objects,
    /// Its own, since a gateway that is started and waited for asks it meanwhile.
    runtime: Option<tokio::runtime::Runtime>,
}

impl S3 {
    pub fn start() -> Self {
        let objects = Objects::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new()
            .route("/bucket", any(bucket))
            .route("/bucket/", any(bucket))
            .route("/bucket/{*key}", any(object))
            .with_state(Arc::clone(&objects));
        listener.set_nonblocking(true).unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        Self { port, objects, runtime: Some(runtime) }
    }

    /// What a gateway's environment says of it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "not-a-secret".to_owned()),
            ("AWS_REGION", "nowhere-1".to_owned()),
        ]
    }

    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn signed(request: &Request) -> bool {
    let field = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    field.is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 Credential=key/"))
}

fn refused(status: StatusCode, code: &str) -> Response {
    (status, format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>")).into_response()
}

async fn object(State(objects): State<Objects>, Path(key): Path<String>, request: Request) -> Response {
    if !signed(&request) {
        return refused(StatusCode::FORBIDDEN, "AccessDenied");
    }
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap();
    let mut objects = objects.lock().unwrap();
    match head.method {
        Method::PUT if head.headers.contains_key(header::IF_NONE_MATCH) && objects.contains_key(&key) => {
            refused(StatusCode::PRECONDITION_FAILED, "PreconditionFailed")
        }
        Method::PUT => {
            objects.insert(key, body);
            ([(header::ETAG, "\"e\"")], "").into_response()
        }
        Method::GET | Method::HEAD => match objects.get(&key) {
            Some(bytes) => {
                let fields = [(header::ETAG, "\"e\""), (header::LAST_MODIFIED, "Tue, 01 Dec 2026 00:00:00 GMT")];
                (fields, Body::from(bytes.clone())).into_response()
            }
            None => refused(StatusCode::NOT_FOUND, "NoSuchKey"),
        },
        Method::DELETE => {
            objects.remove(&key);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => refused(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }
}

async fn bucket(State(objects): State<Objects>, request: Request) -> Response {
    if !signed(&request) {
        return refused(StatusCode::FORBIDDEN, "AccessDenied");
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_deletion = request.method() == Method::POST && query.starts_with("delete");
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let mut objects = objects.lock().unwrap();
    if is_deletion {
        let text = String::from_utf8(body.to_vec()).unwrap();
        let keys = text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
        let gone = keys.map(|key| {
            objects.remove(key);
            format!("<Deleted><Key>{key}</Key></Deleted>")
        });
        return format!("<DeleteResult>{}</DeleteResult>", gone.collect::<String>()).into_response();
    }
    page(&objects, &query).into_response()
}

/// One page of a listing: two entries, which are objects or what stands before the next delimiter.
fn page(objects: &BTreeMap<String, Bytes>, query: &str) -> String {
    let asked = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).next();
        value.map(|value| percent_decode_str(value).decode_utf8_lossy().into_owned())
    };
    let (prefix, delimiter) = (asked("prefix").unwrap_or_default(), asked("delimiter"));
    let after = asked("continuation-token").or_else(|| asked("start-after")).unwrap_or_default();
    let entry = |key: &String| match &delimiter {
        Some(delimiter) => match key[prefix.len()..].find(delimiter.as_str()) {
            Some(at) => (key[..prefix.len() + at + 1].to_owned(), true),
            None => (key.clone(), false),
        },
        None => (key.clone(), false),
    };
    let below = objects.keys().filter(|key| key.starts_with(&prefix));
    let entries: BTreeSet<(String, bool)> = below.map(entry).filter(|(key, _)| *key > after).collect();
    let mut text = "<ListBucketResult>".to_owned();
    for (key, is_prefix) in entries.iter().take(2) {
        text += &if *is_prefix {
            format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>")
        } else {
            let size = objects[key].len();
            format!(
                "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag>\
                 <LastModified>2026-12-01T00:00:00.000Z</LastModified></Contents>"
            )
        };
    }
    if let Some((last, _)) = entries.iter().nth(1).filter(|_| entries.len() > 2) {
        text += &format!("<NextContinuationToken>{last}</NextContinuationToken><IsTruncated>true</IsTruncated>");
    }
    text + "</ListBucketResult>"
}
