//! Who may reach the gateway over the network, and how: tokens, TLS, and the addresses that may be bound.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use gateway::{Authentication, CertificateError, Tls, TokenFileError, TokenStore};

use crate::error::Failure;

#[derive(Clone, Debug, Args)]
pub(crate) struct AccessOptions {
    /// Serve only callers who show a token of this file (`Authorization: Bearer TOKEN`). A line is `name:token`
    /// or `name:sha256:HEX`; `ringfence token` makes one. The file is read again when it changes.
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// Speak TLS, with the certificate (and its chain) of this PEM file. Read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A proxy in front ends TLS: plain HTTP may be served on an address that is not loopback. The callers'
    /// addresses are taken from its `X-Forwarded-For`.
    #[arg(long)]
    pub(crate) behind_proxy: bool,
}

/// What the options come to, read and checked.
pub(crate) struct Access {
    pub(crate) authentication: Authentication,
    pub(crate) tls: Option<Tls>,
}

/// Why nobody is let in.
#[derive(Debug)]
pub(crate) enum AccessFailure {
    /// An address of the network, and everybody could call.
    NoTokens(SocketAddr),
    /// An address of the network, and everybody could listen.
    NoTls(SocketAddr),
    TokenFile(TokenFileError),
    /// A token cannot be made.
    Token(TokenFileError),
    Certificate(CertificateError),
}

impl AccessOptions {
    /// Only this machine may connect, unless callers show who they are where nobody can read it.
    pub(crate) fn open(&self, address: SocketAddr) -> Result<Access, Failure> {
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !is_loopback && self.auth_token_file.is_none() {
            return Err(AccessFailure::NoTokens(address).into());
        }
        if !is_loopback && !self.behind_proxy && self.tls_cert.is_none() {
            return Err(AccessFailure::NoTls(address).into());
        }
        let authentication = match &self.auth_token_file {
            None => Authentication::Open,
            Some(path) => Authentication::Tokens(TokenStore::open(path).map_err(AccessFailure::TokenFile)?),
        };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(Tls::new(certificate, key).map_err(AccessFailure::Certificate)?)
            }
            _ => None,
        };
        Ok(Access { authentication, tls })
    }

    /// What no fenced server may read, wherever it lies.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [&self.auth_token_file, &self.tls_key];
        // What a link leads to is what would be read.
        files.into_iter().flatten().filter_map(|path| path.canonicalize().ok())
    }
}

impl AccessFailure {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NoTokens(_) => {
                "anybody who reaches the address could run the server's tools; give callers \
                tokens with --auth-token-file (`ringfence token` makes them), or bind 127.0.0.1"
                    .to_owned()
            }
            Self::NoTls(_) => "anybody on the way could read the tokens; add --tls-cert and --tls-key, or \
                --behind-proxy if a proxy in front ends TLS"
                .to_owned(),
            Self::TokenFile(error) | Self::Token(error) => error.hint(),
            Self::Certificate(error) => error.hint().to_owned(),
        }
    }
}

impl fmt::Display for AccessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTokens(address) => {
                write!(
                    f,
                    "refusing to listen on {}: it is not a loopback address, and there is no authentication",
                    address.ip()
                )
            }
            Self::NoTls(address) => {
                write!(
                    f,
                    "refusing to listen on {}: it is not a loopback address, and there is no TLS",
                    address.ip()
                )
            }
            Self::TokenFile(error) => write!(f, "--auth-token-file {error}"),
            Self::Token(error) => error.fmt(f),
            Self::Certificate(error) => write!(f, "--tls-cert {error}"),
        }
    }
}

impl From<AccessFailure> for Failure {
    fn from(failure: AccessFailure) -> Self {
        Self::Access(Box::new(failure))
    }
}
