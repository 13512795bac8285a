//! The options that protect the gateway on a network: tokens, TLS, and the addresses that they allow to bind.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use gateway::{Authentication, CertificateError, Tls, TokenFileError, TokenStore};

#[derive(Clone, Debug, Args)]
pub(crate) struct AccessOptions {
    /// Serve only callers that send a token of this file (`Authorization: Bearer TOKEN`). A line is `name:token`
    /// or `name:sha256:HEX`, with `expires=DATE` behind it if wanted; `ringfence token` makes one. The file is read
    /// again when it changes. What a caller may do is said by `principals` in the configuration; without an entry
    /// it can name no directory but those of --allow-scope and --workspace.
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// Use TLS, with the certificate (and its chain) of this PEM file. The file is read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow plain HTTP on an address that is not loopback, because a proxy in front terminates TLS. Take the callers'
    /// addresses from its `X-Forwarded-For`.
    #[arg(long)]
    pub(crate) behind_proxy: bool,
}

/// The options, read and checked.
pub(crate) struct Access {
    pub(crate) authentication: Authentication,
    pub(crate) tls: Option<Tls>,
}

/// Why the gateway does not listen.
#[derive(Debug)]
pub(crate) enum AccessError {
    /// Anyone on the network could call.
    NoTokens(SocketAddr),
    /// Anyone on the network could read the tokens.
    NoTls(SocketAddr),
    TokenFile(TokenFileError),
    /// `ringfence token` cannot add or remove a token.
    Token(TokenFileError),
    Certificate(CertificateError),
}

impl AccessOptions {
    /// Refuses an address that is not loopback unless callers need a token and TLS protects it.
    pub(crate) fn open(&self, address: SocketAddr) -> Result<Access, AccessError> {
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !is_loopback && self.auth_token_file.is_none() {
            return Err(AccessError::NoTokens(address));
        }
        if !is_loopback && !self.behind_proxy && self.tls_cert.is_none() {
            return Err(AccessError::NoTls(address));
        }
        let authentication = match &self.auth_token_file {
            None => Authentication::Open,
            Some(path) => Authentication::Tokens(TokenStore::open(path).map_err(AccessError::TokenFile)?),
        };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(Tls::new(certificate, key).map_err(AccessError::Certificate)?)
            }
            _ => None,
        };
        Ok(Access { authentication, tls })
    }

    /// The files that decide who may connect.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        [&self.auth_token_file, &self.tls_cert, &self.tls_key].into_iter().flatten().cloned().collect()
    }

    /// Files that no fenced server may read.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [&self.auth_token_file, &self.tls_key];
        // A link must not lead around the rule.
        files.into_iter().flatten().filter_map(|path| path.canonicalize().ok())
    }
}

impl AccessError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NoTokens(_) => {
                "anybody who reaches the address could run the server's tools; give callers \
                tokens with --auth-token-file (`ringfence token` makes them), or bind 127.0.0.1"
                    .to_owned()
            }
            Self::NoTls(_) => {
                "anybody on the network could read the tokens; add --tls-cert and --tls-key, or \
                --behind-proxy if a proxy in front terminates TLS"
                    .to_owned()
            }
            Self::TokenFile(error) | Self::Token(error) => error.hint(),
            Self::Certificate(error) => error.hint().to_owned(),
        }
    }
}

impl fmt::Display for AccessError {
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
