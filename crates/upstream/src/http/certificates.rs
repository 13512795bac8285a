//! Which certificates of servers are trusted, and the words for one that is not.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Why the file with more certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    #[error("{0}")]
    Unreadable(rustls::pki_types::pem::Error),
    #[error("there is no certificate in it")]
    Empty,
    #[error("it holds a certificate that cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// Certificates that are trusted beside those of this machine.
static TRUSTED: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();

/// Makes all connections trust the certificates in this PEM file, too. To be called once, before the first connection.
pub fn trust(file: &Path) -> Result<(), CertificateFileError> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(CertificateFileError::Unreadable)?;
    if certificates.is_empty() {
        return Err(CertificateFileError::Empty);
    }
    let mut roots = rustls::RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(CertificateFileError::Unusable)?;
    }
    TRUSTED.get_or_init(|| certificates);
    Ok(())
}

/// The words for a certificate that was not accepted, if that is why a connection failed.
///
/// The reason is in the text alone: the layers between keep rustls' own error from being found by its type.
pub(super) fn about(error: &dyn std::error::Error) -> Option<&'static str> {
    let text = error.to_string();
    let reason = text.strip_prefix("invalid peer certificate")?;
    let says = |part: &str| reason.to_ascii_lowercase().contains(part);
    Some(if says("expired") {
        "its certificate has expired"
    } else if says("not valid yet") || says("notvalidyet") {
        "its certificate is not valid yet; is the clock of this machine right?"
    } else if says("not valid for name") || says("notvalidforname") {
        "its certificate is for another host name than the one in the URL"
    } else if says("revoked") {
        "its certificate was revoked"
    } else {
        "its certificate is from an authority that this machine does not trust; `ringfence connect --ca FILE` or \
         SSL_CERT_FILE names the authority's certificate"
    })
}

/// One TLS configuration for all connections, so that certificates are read once and TLS sessions resumed.
pub fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    static TLS: OnceLock<Result<rustls::ClientConfig, rustls::Error>> = OnceLock::new();
    TLS.get_or_init(|| {
        // Also reads SSL_CERT_FILE and SSL_CERT_DIR. Without any certificates plain HTTP still works.
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(%error, "cannot read a root certificate");
        }
        let mut roots = rustls::RootCertStore::empty();
        let trusted = TRUSTED.get().cloned().unwrap_or_default();
        let (added, ignored) = roots.add_parsable_certificates(found.certs.into_iter().chain(trusted));
        tracing::debug!(added, ignored, "read the root certificates");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    })
    .clone()
}
