//! Fetches the certificates that senders name by URL, beside the deliveries.
//!
//! Invariants: HTTPS at port 443 of a host that the route allows, and there only at public addresses: a URL comes with a request, so
//! it is anybody's word. No redirect is followed, and no more is read than a chain needs.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::refused_address;
use crate::plugin::certificates::{Asked, Certificates};

use super::admission::wall_clock_ms;
use super::upstream::roots;

/// The longest that one fetch takes, the look-up of its host included.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer, in bytes: a chain of four with room.
const BYTES_MAX: usize = 64 << 10;
/// Fetches of one route at once.
const AT_ONCE: usize = 4;

/// Fetches what is asked for, until the certificates are gone.
pub async fn certificates(known: Weak<Certificates>, asked: Asked) {
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots()).with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(tls));
    let urls = stream::unfold(asked, async |mut asked| asked.recv().await.map(|url| (url, asked)));
    urls.for_each_concurrent(AT_ONCE, async |url| {
        let late = |_| Err(format!("nothing within {PATIENCE:?}"));
        let fetched = tokio::time::timeout(PATIENCE, fetch(&tls, &url)).await.unwrap_or_else(late);
        if let Some(known) = known.upgrade() {
            known.arrived(&url, fetched, Duration::from_millis(wall_clock_ms()));
        }
    })
    .await;
}

/// What is at a URL.
async fn fetch(tls: &TlsConnector, url: &str) -> Result<String, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| told(&error))?;
    let host = uri.host().ok_or("it names no host")?.to_owned();
    let tcp = TcpStream::connect(address(&host).await?).await.map_err(|error| told(&error))?;
    let name = ServerName::try_from(host.clone()).map_err(|error| told(&error))?;
    let stream = tls.connect(name, tcp).await.map_err(|error| told(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| told(&error))?;
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, host)
        .header(USER_AGENT, concat!("onceward/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/x-pem-file, application/pem-certificate-chain, text/plain, */*")
        .body(Empty::<Bytes>::new())
        .map_err(|error| told(&error))?;
    // Ends with the sender, which this call holds.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| told(&error))?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("it answers {}", response.status()));
    }
    let body = Limited::new(response.into_body(), BYTES_MAX).collect().await.map_err(|error| told(&error))?;
    String::from_utf8(body.to_bytes().to_vec()).map_err(|error| told(&error))
}

/// A public address of a host.
async fn address(host: &str) -> Result<SocketAddr, String> {
    // For a test, whose server cannot stand at a public address.
    fail::fail_point!("certificates.dial", |to| to
        .and_then(|to| to.parse().ok())
        .ok_or_else(|| "no address to dial".to_owned()));
    let mut found = tokio::net::lookup_host((host, 443)).await.map_err(|error| error.to_string())?;
    found.find(|address| is_public(address.ip())).ok_or_else(|| "its host has no public address".to_owned())
}

/// Whether an address is one of the open internet.
fn is_public(address: IpAddr) -> bool {
    if refused_address(address).is_some() {
        return false;
    }
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, second, third, _] = v4.octets();
            let shared = first == 100 && (64..128).contains(&second);
            let assigned = first == 192 && second == 0 && third == 0;
            let benchmark = first == 198 && (18..20).contains(&second);
            let reserved = v4.is_loopback() || v4.is_private() || v4.is_documentation() || first >= 240;
            !(shared || assigned || benchmark || reserved)
        }
        IpAddr::V6(v6) => {
            // Only global unicast is given out, 2000::/3; documentation, and addresses that lead into IPv4, are not for this.
            let [first, second, ..] = v6.segments();
            let tunnel = first == 0x2002 || (first == 0x2001 && second == 0);
            let documentation = first == 0x2001 && second == 0xdb8;
            first & 0xe000 == 0x2000 && !tunnel && !documentation
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_public;

    #[test]
    fn only_public_addresses_are_dialled() {
        for public in ["8.8.8.8", "151.101.1.21", "100.63.0.1", "2a04:4e42::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for inside in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "192.0.0.8",
            "198.18.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "203.0.113.7",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "ff02::1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
    }
}
