//! A sender that signs with a certificate which it names by URL: the gateway fetches it, from allowed hosts only.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::rig::{is_first, is_problem, is_replay};
use crate::support::authority::Authority;
use crate::support::client::{Answer, post};
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::Upstream;

const HOST: &str = "api.sandbox.paypal.com";

fn case(name: &str) -> Value {
    let path = Path::new("tests/fixtures/providers/paypal").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Delivers a case as its sender would.
async fn deliver(gateway: &Gateway, case: &Value) -> Answer {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let fields: Vec<(String, String)> =
        case["headers"].as_array().unwrap().iter().map(|line| (text(&line[0]), text(&line[1]))).collect();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    post(gateway.ingest, "/pay", &fields, STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap()).await
}

/// The chain that the first case is signed with, and its root.
fn chain() -> (String, String) {
    let config = case("01-first.json")["config"].clone();
    let pem = config["certs"].as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
    (pem, config["trust_root_pem"].as_str().unwrap().to_owned())
}

/// PayPal's host as the gateway finds it: HTTPS by an authority of this test's own.
struct Host {
    authority: Authority,
    address: String,
    asked: Arc<AtomicUsize>,
    answer: Arc<std::sync::Mutex<Vec<u8>>>,
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Host {
    async fn start(answer: Vec<u8>) -> Self {
        let authority = Authority::for_name(&format!("DNS:{HOST}"));
        let certificate = CertificateDer::from_pem_file(authority.file("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(authority.file("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(answer)));
        let (counted, said) = (Arc::clone(&asked), Arc::clone(&answer));
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let Ok(mut stream) = acceptor.accept(socket).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = said.lock().unwrap().clone();
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { authority, address, asked, answer }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn say(&self, answer: Vec<u8>) {
        *self.answer.lock().unwrap() = answer;
    }

    /// A gateway that looks the host up here, and a route for PayPal with these lines of trust.
    async fn gateway(&self, trust: &str) -> (Gateway, Upstream) {
        let upstream = Upstream::counting().await;
        let text = config(SQLITE, upstream.address, "").replace(
            "plugin = \"json\"\nplugin_config = { key = [\"/id\"], material = [\"/amount\"] }",
            &format!("plugin = \"paypal\"\nplugin_config = {{ webhook_id = \"WHTESTONLY0000001\" }}\n{trust}"),
        );
        let home = Home::new(&text);
        std::fs::write(home.path().join("roots.pem"), chain().1).unwrap();
        let dial = format!("certificates.dial=dial:{}", self.address);
        let authority = self.authority.file("ca.pem");
        let environment = [("ONCEWARD_FAILPOINTS", dial.as_str()), ("SSL_CERT_FILE", authority.as_str())];
        (home.start_with(&environment), upstream)
    }
}

const TRUST: &str = "certificates = { roots = \"roots.pem\" }";

/// The first delivery waits for the certificate and is forwarded; each later one finds it. What is not signed by it is refused.
#[tokio::test]
async fn a_certificate_is_fetched_once() {
    let host = Host::start(ok(&chain().0)).await;
    let (gateway, upstream) = host.gateway(TRUST).await;
    let first = deliver(&gateway, &case("01-first.json")).await;
    is_first(&first, "call 0");
    is_replay(&deliver(&gateway, &case("02-redelivery.json")).await, &first);
    is_problem(&deliver(&gateway, &case("03-conflict-amount.json")).await, 409, "fingerprint-mismatch");
    is_problem(&deliver(&gateway, &case("04-bad-signature.json")).await, 401, "unverified");
    is_problem(&deliver(&gateway, &case("05-wrong-webhook-id.json")).await, 401, "unverified");
    assert_eq!((host.asked(), upstream.count()), (1, 1));
}

/// A URL of a host that is not allowed is not looked at.
#[tokio::test]
async fn no_other_host_is_asked() {
    let host = Host::start(ok(&chain().0)).await;
    let (gateway, upstream) = host.gateway(TRUST).await;
    is_problem(&deliver(&gateway, &case("06-cert-url-foreign-host.json")).await, 401, "unverified");
    let (other, _upstream) =
        host.gateway("certificates = { hosts = [\"api.paypal.com\"], roots = \"roots.pem\" }").await;
    is_problem(&deliver(&other, &case("01-first.json")).await, 401, "unverified");
    assert_eq!((host.asked(), upstream.count()), (0, 0));
}

/// What cannot be had, or is no chain to a root, is "not yet": the sender comes again, and is served once it is there.
#[tokio::test]
async fn what_cannot_be_fetched_is_not_yet_there() {
    let (pem, _) = chain();
    let elsewhere = format!("HTTP/1.1 302 Found\r\nlocation: https://{HOST}/other\r\ncontent-length: 0\r\n\r\n");
    let large = ok(&(pem.clone() + &"\n".repeat(100_000)));
    let nothing = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec();
    let all = [elsewhere.into_bytes(), large, ok("no certificate"), nothing];
    // Beside one another, since each waits for the pause after a failure to end.
    futures::future::join_all(all.map(|wrong| recovers(wrong, &pem))).await;
}

async fn recovers(wrong: Vec<u8>, pem: &str) {
    let host = Host::start(wrong).await;
    let (gateway, upstream) = host.gateway(TRUST).await;
    let refused = deliver(&gateway, &case("01-first.json")).await;
    is_problem(&refused, 503, "plugin-unavailable");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    // It is left alone for a while: anybody may name URLs.
    is_problem(&deliver(&gateway, &case("01-first.json")).await, 503, "plugin-unavailable");
    assert_eq!((host.asked(), upstream.count()), (1, 0));
    host.say(ok(pem));
    eventually("the certificate is there", || async { deliver(&gateway, &case("01-first.json")).await.status == 200 })
        .await;
    assert_eq!((host.asked(), upstream.count()), (2, 1));
}

/// A chain to a root that the route does not trust, or of another name, is not kept.
#[tokio::test]
async fn an_untrusted_chain_is_not_kept() {
    let host = Host::start(ok(&chain().0)).await;
    for trust in ["", "certificates = { names = [\"*.example.com\"], roots = \"roots.pem\" }"] {
        let (gateway, upstream) = host.gateway(trust).await;
        is_problem(&deliver(&gateway, &case("01-first.json")).await, 503, "plugin-unavailable");
        assert!(gateway.log().contains("does not chain to a trusted root"), "{}", gateway.log());
        assert_eq!(upstream.count(), 0);
    }
}
