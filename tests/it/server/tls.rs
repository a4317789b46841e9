//! The same server behind TLS, with certificates from files.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use onceward::config::model::Tls;
use onceward::server::tls::{TlsError, load};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::rig::{Rig, settings};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

fn files(client_ca: bool) -> Tls {
    let client_ca = client_ca.then(|| fixture("ca.pem"));
    Tls { cert: fixture("server.pem"), key: fixture("server.key.pem"), client_ca }
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(fixture(name)).unwrap().collect::<Result<_, _>>().unwrap()
}

type Stream = rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>;

fn connect(rig: &Rig, with_certificate: bool, protocols: &[&[u8]]) -> Stream {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates("ca.pem").remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = if with_certificate {
        let key = PrivateKeyDer::from_pem_file(fixture("client.key.pem")).unwrap();
        builder.with_client_auth_cert(certificates("client.pem"), key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    rustls::StreamOwned::new(connection, rig.connect().stream)
}

fn ask(stream: &mut Stream, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn requests_and_refusals_travel_encrypted() {
    let rig = Rig::with(settings(), Some(load(&files(false)).unwrap()));
    let mut stream = connect(&rig, false, &[b"h2", b"http/1.1"]);
    let answer = ask(&mut stream, "GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("true false"), "{answer}");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = ask(&mut connect(&rig, false, &[]), "GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    // Whoever speaks no TLS is closed, and the next is served.
    let mut plain = rig.connect();
    plain.send("GET /who HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = plain.stream.read_to_end(&mut Vec::new());
    assert_eq!(rig.requests(), 1);
}

#[test]
fn a_client_certificate_is_demanded_and_handed_on() {
    let rig = Rig::with(settings(), Some(load(&files(true)).unwrap()));
    let request = "GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = ask(&mut connect(&rig, true, &[]), request).unwrap();
    assert!(answer.ends_with("true true"), "{answer}");
    assert!(ask(&mut connect(&rig, false, &[]), request).is_err(), "served without a certificate");
    assert_eq!(rig.requests(), 1);
}

#[test]
fn a_faulty_file_is_named() {
    let mut missing = files(false);
    missing.cert = fixture("absent.pem");
    assert!(matches!(load(&missing), Err(TlsError::File { path, .. }) if path.ends_with("absent.pem")));
    let mut swapped = files(false);
    swapped.cert = fixture("server.key.pem");
    assert!(matches!(load(&swapped), Err(TlsError::NoCertificate(path)) if path.ends_with("server.key.pem")));
    let mut other_key = files(false);
    other_key.key = fixture("client.key.pem");
    assert!(matches!(load(&other_key), Err(TlsError::Identity(_))));
}
