//! TLS for the clients' listener: a certificate and its key from PEM files, read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::reloaded::{Reloaded, Source};

/// How long a peer may take for the TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: pem::Error },
    #[error("{}: it holds no certificate", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} and {}: {error}", certificate.display(), key.display())]
    Pair { certificate: PathBuf, key: PathBuf, error: rustls::Error },
    #[error("TLS cannot be set up: {0}")]
    Protocol(rustls::Error),
}

impl CertificateError {
    /// What the operator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::NoCertificate { .. } => {
                "--tls-cert is a PEM file with the certificate and the chain behind it, --tls-key one with its \
                 private key, without a password"
            }
            Self::Pair { .. } => "the key must belong to the first certificate of the file",
            Self::Protocol(_) => {
                "omit --tls-cert and --tls-key, and let a proxy terminate TLS (--behind-proxy)"
            }
        }
    }
}

/// Turns TCP connections into TLS streams.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    pub fn new(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let files = CertificateFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            provider: Arc::clone(&provider),
        };
        let resolver = Resolver(Reloaded::new(files)?);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Protocol)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = self.acceptor.accept(stream);
        tokio::time::timeout(HANDSHAKE_WITHIN, handshake)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[derive(Debug)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl Source for CertificateFiles {
    type Value = CertifiedKey;
    type Error = CertificateError;

    fn files(&self) -> Vec<PathBuf> {
        vec![self.certificate.clone(), self.key.clone()]
    }

    fn load(&self) -> Result<CertifiedKey, CertificateError> {
        let unreadable = |path: &Path, error| CertificateError::Unreadable { path: path.to_owned(), error };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| unreadable(&self.certificate, error))?;
        if chain.is_empty() {
            return Err(CertificateError::NoCertificate { path: self.certificate.clone() });
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unreadable(&self.key, error))?;
        CertifiedKey::from_der(chain, key, &self.provider).map_err(|error| CertificateError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            error,
        })
    }
}

/// Presents the one certificate for every name that a client asks for.
#[derive(Debug)]
struct Resolver(Reloaded<CertificateFiles>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current())
    }
}
