use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::*;

/// PayPal's first case: its certificates, its root, a signature, and what was signed.
struct Sample {
    certs: Vec<(String, String)>,
    root: String,
    signed: Vec<u8>,
    message: String,
}

const URL: &str = "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-test-0001";
const NOW: Duration = Duration::from_secs(1_790_000_000);

fn sample() -> Sample {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/providers/paypal/01-first.json");
    let case: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let header = |name: &str| {
        let lines = case["headers"].as_array().unwrap();
        lines.iter().find(|line| line[0] == name).unwrap()[1].as_str().unwrap().to_owned()
    };
    let body = BASE64_STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap();
    let certs = case["config"]["certs"].as_object().unwrap();
    Sample {
        certs: certs.iter().map(|(url, pem)| (url.clone(), pem.as_str().unwrap().to_owned())).collect(),
        root: case["config"]["trust_root_pem"].as_str().unwrap().to_owned(),
        signed: BASE64_STANDARD.decode(header("PAYPAL-TRANSMISSION-SIG")).unwrap(),
        message: format!(
            "{}|{}|{}|{}",
            header("PAYPAL-TRANSMISSION-ID"),
            header("PAYPAL-TRANSMISSION-TIME"),
            case["config"]["webhook_id"].as_str().unwrap(),
            crc32(&body)
        ),
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |rest, byte| {
        (0..8)
            .fold(rest ^ u32::from(*byte), |rest, _| if rest & 1 == 1 { (rest >> 1) ^ 0xedb8_8320 } else { rest >> 1 })
    })
}

fn trusting(sample: &Sample, names: &[&str]) -> Certificates {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificates = Certificates::new(&["API.sandbox.paypal.com".to_owned()], &names, &sample.root).unwrap();
    for (url, pem) in &sample.certs {
        certificates.insert(url, pem).unwrap();
    }
    certificates
}

fn verify(certificates: &Certificates, sample: &Sample, url: &str, at: Duration) -> Result<bool, Fault> {
    certificates.verify(url, Scheme::RsaPkcs1Sha256, &[sample.message.as_bytes()], &sample.signed, at)
}

#[test]
fn a_trusted_key_is_asked() {
    let sample = sample();
    let certificates = trusting(&sample, &[]);
    assert_eq!(verify(&certificates, &sample, URL, NOW), Ok(true));
    let other = certificates.verify(URL, Scheme::RsaPkcs1Sha256, &[b"another"], &sample.signed, NOW);
    assert_eq!(other, Ok(false));
    let empty = certificates.verify(URL, Scheme::RsaPkcs1Sha256, &[b"another"], b"", NOW);
    assert_eq!(empty, Err(Fault::BadSignatureForm));
    let kind = certificates.verify(URL, Scheme::EcdsaP256Sha256, &[b"another"], &sample.signed, NOW);
    assert_eq!(kind, Err(Fault::Untrusted));
}

#[test]
fn a_certificate_counts_in_its_time_only() {
    let sample = sample();
    let certificates = trusting(&sample, &[]);
    // From 2025-01-01 to 2036-01-01.
    for (seconds, expected) in [
        (1_735_689_599, Err(Fault::Untrusted)),
        (1_735_689_600, Ok(true)),
        (2_082_758_400, Ok(true)),
        (2_082_758_401, Err(Fault::Untrusted)),
    ] {
        assert_eq!(verify(&certificates, &sample, URL, Duration::from_secs(seconds)), expected, "{seconds}");
    }
}

#[test]
fn a_root_that_did_not_sign_vouches_for_nothing() {
    let sample = sample();
    let stranger = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/ca.pem")).unwrap();
    let certificates = trusting(&Sample { root: stranger, ..self::sample() }, &[]);
    assert_eq!(verify(&certificates, &sample, URL, NOW), Err(Fault::Untrusted));
}

#[test]
fn names_are_matched_whole() {
    let sample = sample();
    for (names, trusted) in [
        (&["*.paypal.com"][..], true),
        (&["MessageVerificationCerts.sandbox.paypal.com"], true),
        (&["example.com", "*.sandbox.paypal.com"], true),
        (&["paypal.com"], false),
        (&["*.ypal.com"], false),
        (&["*ypal.com"], false),
        (&["*"], false),
        (&["*.messageverificationcerts.sandbox.paypal.com"], false),
    ] {
        let expected = if trusted { Ok(true) } else { Err(Fault::Untrusted) };
        assert_eq!(verify(&trusting(&sample, names), &sample, URL, NOW), expected, "{names:?}");
    }
}

/// Only what is certainly on an allowed host is looked up: an address that is read in two ways could be fetched from elsewhere.
#[test]
fn other_urls_are_not_looked_up() {
    let sample = sample();
    let certificates = trusting(&sample, &[]);
    for url in [
        "https://certs.attacker.example/CERT-test",
        "http://api.sandbox.paypal.com/v1/notifications/certs/CERT-test-0001",
        "https://api.sandbox.paypal.com:8443/v1",
        "https://u@api.sandbox.paypal.com/v1",
        "https://api.sandbox.paypal.com@attacker.example/v1",
        "https://attacker.example\\@api.sandbox.paypal.com/v1",
        "https://api.sandbox.paypal.com.attacker.example/v1",
        "https://attacker.example#api.sandbox.paypal.com",
        "//api.sandbox.paypal.com/v1",
        "api.sandbox.paypal.com",
        "",
    ] {
        assert_eq!(verify(&certificates, &sample, url, NOW), Err(Fault::UntrustedUrl), "{url}");
    }
    for url in ["https://api.sandbox.paypal.com/other", "https://API.sandbox.paypal.com:443/other"] {
        assert_eq!(verify(&certificates, &sample, url, NOW), Err(Fault::Unavailable), "{url}");
    }
}

#[test]
fn what_is_no_chain_is_not_kept() {
    let sample = sample();
    let certificates = trusting(&sample, &[]);
    let (_, pem) = &sample.certs[0];
    assert_eq!(certificates.insert(URL, "text"), Err(CertificateError::Malformed));
    assert_eq!(certificates.insert(URL, &pem.repeat(CHAIN_MAX + 1)), Err(CertificateError::TooLong));
    assert!(Certificates::new(&[], &[], "").is_err());
}

/// Anybody can name a genuine certificate by URLs without end: none of that drives out one that deliveries were signed with, nor
/// keeps a new one out.
#[test]
fn what_is_kept_is_bounded_and_in_use_first() {
    let sample = sample();
    let certificates = trusting(&sample, &[]);
    let (_, pem) = &sample.certs[0];
    let flood = |round: &str| {
        for place in 0..2 * URLS_MAX {
            certificates.insert(&format!("{URL}?{round}{place}"), pem).unwrap();
        }
        assert_eq!(certificates.chains.read().unwrap().len(), URLS_MAX);
    };
    assert_eq!(verify(&certificates, &sample, URL, NOW), Ok(true));
    flood("a");
    assert_eq!(verify(&certificates, &sample, URL, NOW), Ok(true), "in use");
    let renewed = format!("{URL}/renewed");
    certificates.insert(&renewed, pem).unwrap();
    assert_eq!(verify(&certificates, &sample, &renewed, NOW), Ok(true), "there is room for it");
    flood("b");
    assert_eq!(verify(&certificates, &sample, URL, NOW), Ok(true));
    assert_eq!(verify(&certificates, &sample, &renewed, NOW), Ok(true));
    let unused = format!("{URL}?a0");
    assert_eq!(verify(&certificates, &sample, &unused, NOW), Err(Fault::Unavailable));
}
