//! TLS on a listener: certificates from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::{ServerConfig, VerifierBuilderError, WebPkiClientVerifier};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};

use crate::config::model;

/// Why a listener cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not PEM.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("{0}: holds no certificate")]
    NoCertificate(PathBuf),
    /// A root certificate is malformed.
    #[error("{path}: {source}")]
    Root {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// Clients cannot be verified with these roots.
    #[error("client_ca: {0}")]
    ClientCa(#[from] VerifierBuilderError),
    /// The certificate and the key do not make a server.
    #[error("certificate and key: {0}")]
    Identity(#[from] rustls::Error),
}

/// Loads what a listener needs. Only HTTP/1.1 is offered.
///
/// # Errors
/// Names the file that is at fault.
pub fn load(tls: &model::Tls) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let chain = certificates(&tls.cert)?;
    let key =
        PrivateKeyDer::from_pem_file(&tls.key).map_err(|source| TlsError::File { path: tls.key.clone(), source })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|source| TlsError::Root { path: path.clone(), source })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(TlsError::NoCertificate(path.to_owned())),
        Ok(chain) => Ok(chain),
        Err(source) => Err(TlsError::File { path: path.to_owned(), source }),
    }
}
