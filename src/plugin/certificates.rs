//! Certificates that senders sign with, by URL: which are trusted, and what their keys signed.
//!
//! Invariants: a URL of another host is never looked up, and so never fetched. A certificate counts only while its chain ends at one
//! of the route's roots, at the time when the request arrived; being kept here proves nothing. No call waits for a fetch: it is asked
//! for here, and made by whoever holds the other end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::Uri;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::crypto::{self, Pieces, Scheme};

mod wanted;

use wanted::Wanted;
pub use wanted::{Arrivals, Asked};

/// The longest chain, the leaf included: each link is one more signature to check.
const CHAIN_MAX: usize = 4;
/// How many URLs are kept. A sender changes its certificate's URL once in months; but anybody can name one certificate by many URLs,
/// so that the host's answer alone must not take the place of a certificate that senders use.
const URLS_MAX: usize = 64;
/// A kept certificate that is not trusted any more is fetched again when it is at least as old.
const STALE_AFTER: Duration = Duration::from_secs(600);

/// A certificate and those that lead from it to a root.
type Chain = Arc<[CertificateDer<'static>]>;

/// What a route trusts, and the certificates that are there.
#[derive(Debug)]
pub struct Certificates {
    /// Exact hosts, in lower case.
    hosts: Vec<String>,
    /// Accepted names, in lower case: exact, or `*.` and an ending. None: any name of a trusted certificate.
    names: Vec<String>,
    roots: Vec<TrustAnchor<'static>>,
    chains: RwLock<HashMap<String, Kept>>,
    /// What is to be fetched; none: what is there is all there is.
    wanted: Option<Wanted>,
}

/// A chain, since when it is here, and whether a delivery came that it signed.
#[derive(Clone, Debug)]
struct Kept {
    chain: Chain,
    since: Instant,
    is_proved: Arc<AtomicBool>,
}

impl Kept {
    fn is_proved(&self) -> bool {
        self.is_proved.load(Ordering::Relaxed)
    }
}

/// Why a certificate or a root cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The text holds none, or one that does not parse.
    #[error("holds no certificate in PEM, or one that cannot be read")]
    Malformed,
    /// More than the longest chain.
    #[error("holds more than {CHAIN_MAX} certificates")]
    TooLong,
}

/// Why nothing can be said of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The URL is not HTTPS, or of another host.
    UntrustedUrl,
    /// The certificate of that URL is not there.
    Unavailable,
    /// It is there and not trusted, or its key is of another kind.
    Untrusted,
    /// No signature of the scheme has this length.
    BadSignatureForm,
}

impl Certificates {
    /// Trusts `roots` (PEM) and whom they vouch for, if it goes by one of `names` and comes from one of `hosts`.
    ///
    /// # Errors
    /// When `roots` holds no root, or one that cannot be read.
    pub fn new(hosts: &[String], names: &[String], roots: &str) -> Result<Self, CertificateError> {
        let roots = parse(roots)?;
        let roots = roots.iter().map(|root| {
            anchor_from_trusted_cert(root).map(|anchor| anchor.to_owned()).map_err(|_| CertificateError::Malformed)
        });
        Ok(Self::trusting(hosts, names, roots.collect::<Result<_, _>>()?))
    }

    /// As [`Self::new`], with the public roots that browsers trust.
    pub fn public(hosts: &[String], names: &[String]) -> Self {
        Self::trusting(hosts, names, webpki_roots::TLS_SERVER_ROOTS.to_vec())
    }

    fn trusting(hosts: &[String], names: &[String], roots: Vec<TrustAnchor<'static>>) -> Self {
        let lower = |texts: &[String]| texts.iter().map(|text| text.to_ascii_lowercase()).collect();
        Self { hosts: lower(hosts), names: lower(names), roots, chains: RwLock::default(), wanted: None }
    }

    /// These, with what is missing asked for at the other end.
    pub fn fetched(mut self) -> (Self, Asked) {
        let (wanted, asked) = Wanted::new();
        self.wanted = Some(wanted);
        (self, asked)
    }

    /// Takes what a fetch brought: kept only if it is trusted at `now`, Unix time, so that nobody fills this with what is not.
    pub fn arrived(&self, url: &str, fetched: Result<String, String>, now: Duration) {
        let kept = fetched.and_then(|pem| {
            let chain = chain(&pem).map_err(|error| format!("what is there {error}"))?;
            self.trusted(&chain, now)
                .map_err(|_| "what is there does not chain to a trusted root, or is of another name")?;
            self.keep(url, chain);
            Ok(())
        });
        match &kept {
            Ok(()) => tracing::info!(url, "a sender's certificate was fetched"),
            Err(why) => tracing::warn!(url, why, "a sender's certificate could not be fetched"),
        }
        if let Some(wanted) = &self.wanted {
            wanted.ended(url, kept.is_ok());
        }
    }

    /// What a caller waits for that met a certificate which is not here; taken before the call.
    pub fn arrivals(&self) -> Option<Arrivals> {
        self.wanted.as_ref().map(Wanted::arrivals)
    }

    /// Keeps what is at `url`: the certificate, and those that lead to a root, in PEM. Where too many are kept another one goes: one
    /// that signed no delivery yet before one that did, the oldest of them.
    ///
    /// # Errors
    /// When it is no chain.
    pub fn insert(&self, url: &str, pem: &str) -> Result<(), CertificateError> {
        self.keep(url, chain(pem)?);
        Ok(())
    }

    fn keep(&self, url: &str, chain: Chain) {
        let mut chains = self.chains.write().unwrap_or_else(PoisonError::into_inner);
        if chains.len() >= URLS_MAX && !chains.contains_key(url) {
            let least = chains.iter().min_by_key(|(_, kept)| (kept.is_proved(), kept.since));
            if let Some(least) = least.map(|(url, _)| url.clone()) {
                chains.remove(&least);
            }
        }
        chains.insert(url.to_owned(), Kept { chain, since: Instant::now(), is_proved: Arc::default() });
    }

    /// Whether the key of the certificate at `url` signed the message, for a request that arrived at `at`, Unix time.
    pub(super) fn verify(
        &self,
        url: &str,
        scheme: Scheme,
        message: &Pieces<'_>,
        signed: &[u8],
        at: Duration,
    ) -> Result<bool, Fault> {
        if !self.trusts(url) {
            return Err(Fault::UntrustedUrl);
        }
        let kept = self.chains.read().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
        let Some(kept) = kept else {
            self.want(url);
            return Err(Fault::Unavailable);
        };
        let leaf = match self.trusted(&kept.chain, at) {
            // It may have been renewed under the same URL.
            Err(_) if kept.since.elapsed() >= STALE_AFTER && self.want(url) => return Err(Fault::Unavailable),
            trusted => trusted?,
        };
        let is_signed = crypto::signed_by(&leaf.subject_public_key_info(), scheme, message, signed);
        let is_signed = is_signed.map_err(|fault| match fault {
            crypto::Fault::BadKey => Fault::Untrusted,
            crypto::Fault::BadSignatureForm => Fault::BadSignatureForm,
        })?;
        if is_signed {
            kept.is_proved.store(true, Ordering::Relaxed);
        }
        Ok(is_signed)
    }

    fn want(&self, url: &str) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.ask(url))
    }

    /// The leaf of a chain that ends at one of the roots and goes by an accepted name.
    fn trusted<'a>(&self, chain: &'a [CertificateDer<'static>], at: Duration) -> Result<EndEntityCert<'a>, Fault> {
        let (leaf, intermediates) = chain.split_first().ok_or(Fault::Unavailable)?;
        let leaf = EndEntityCert::try_from(leaf).map_err(|_| Fault::Untrusted)?;
        let (algorithms, usage) = (ALL_VERIFICATION_ALGS, KeyUsage::server_auth());
        let time = UnixTime::since_unix_epoch(at);
        leaf.verify_for_usage(algorithms, &self.roots, intermediates, time, usage, None, None)
            .map_err(|_| Fault::Untrusted)?;
        if !self.names.is_empty() && !leaf.valid_dns_names().any(|name| self.accepts(name)) {
            return Err(Fault::Untrusted);
        }
        Ok(leaf)
    }

    /// Whether the URL is one that a certificate may come from: HTTPS at its own port, and nothing that readers of URLs take
    /// differently.
    fn trusts(&self, url: &str) -> bool {
        let Ok(uri) = url.parse::<Uri>() else { return false };
        let Some(authority) = uri.authority() else { return false };
        let plain = !url.contains(['@', '#', '\\']) && authority.port().is_none_or(|port| port.as_str() == "443");
        let host = authority.host().to_ascii_lowercase();
        plain && uri.scheme_str() == Some("https") && self.hosts.contains(&host)
    }

    fn accepts(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.names.iter().any(|known| match known.strip_prefix('*') {
            Some(ending) => ending.starts_with('.') && name.ends_with(ending) && name.len() > ending.len(),
            None => *known == name,
        })
    }
}

/// A chain that is short enough to be checked.
fn chain(pem: &str) -> Result<Chain, CertificateError> {
    let chain = parse(pem)?;
    if chain.len() > CHAIN_MAX { Err(CertificateError::TooLong) } else { Ok(chain.into()) }
}

fn parse(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(CertificateError::Malformed),
    }
}

#[cfg(test)]
#[path = "certificates/tests.rs"]
mod tests;
