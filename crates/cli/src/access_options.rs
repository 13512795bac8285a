//! The options that protect the gateway on a network: tokens, TLS, and the addresses that they allow to bind.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use gateway::{Authentication, CertificateError, Tls, TokenFileError, TokenStore};
use session::{PrincipalUsers, PrincipalUsersError, UserRange};

use crate::config_path::state_directory;

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
    /// Give each caller a user of its own on this host, with a number from this range, such as 300000-365535, that
    /// no other user has: its servers run as that user, so callers are apart even where a fence fails. Only for root.
    /// The first number is for servers that callers share. Directories must be writable for their caller's user.
    #[arg(long, value_name = "FIRST-LAST", requires = "auth_token_file")]
    principal_uids: Option<UserRange>,
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
    /// Only root can give principals users.
    NotRoot,
    /// A user of the host has a number of the range.
    UidTaken(String),
    /// There is no home to keep the users of principals in.
    NoStateDirectory,
    Users(PrincipalUsersError),
}

impl AccessOptions {
    /// Refuses an address that is not loopback unless callers need a token and TLS protects it.
    pub(crate) fn open(&self, addresses: &[SocketAddr]) -> Result<Access, AccessError> {
        let is_open = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        if let Some(&address) = addresses.iter().find(is_open) {
            if self.auth_token_file.is_none() {
                return Err(AccessError::NoTokens(address));
            }
            if !self.behind_proxy && self.tls_cert.is_none() {
                return Err(AccessError::NoTls(address));
            }
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

    pub(crate) fn gives_principals_users(&self) -> bool {
        self.principal_uids.is_some()
    }

    /// The users of principals, if they are to have any.
    pub(crate) fn principal_users(&self) -> Result<Option<PrincipalUsers>, AccessError> {
        let Some(range) = self.principal_uids.clone() else { return Ok(None) };
        if !rustix::process::geteuid().is_root() {
            return Err(AccessError::NotRoot);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if let Some(user) = range.taken_by(&passwd) {
            return Err(AccessError::UidTaken(user.to_owned()));
        }
        let file = users_file().ok_or(AccessError::NoStateDirectory)?;
        PrincipalUsers::open(file, range).map(Some).map_err(AccessError::Users)
    }

    /// The files that decide who may connect, and as whom servers run.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let users = users_file().filter(|_| self.principal_uids.is_some());
        let named = [&self.auth_token_file, &self.tls_cert, &self.tls_key].into_iter().flatten().cloned();
        named.chain(users).collect()
    }

    /// Files that no fenced server may read.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [&self.auth_token_file, &self.tls_key];
        // A link must not lead around the rule.
        files.into_iter().flatten().filter_map(|path| path.canonicalize().ok())
    }
}

/// Where the users of principals are remembered.
fn users_file() -> Option<PathBuf> {
    Some(state_directory()?.join("principal-uids.json"))
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
            Self::NotRoot => "run the gateway as root, or leave --principal-uids out".to_owned(),
            Self::UidTaken(_) => {
                "choose numbers that no user of this host has, such as --principal-uids 300000-365535"
                    .to_owned()
            }
            Self::NoStateDirectory => "set HOME or XDG_STATE_HOME".to_owned(),
            Self::Users(error) => error.hint().to_owned(),
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
            Self::NotRoot => f.write_str("--principal-uids: only root can run servers as other users"),
            Self::UidTaken(user) => write!(f, "--principal-uids: the user {user} has a number of that range"),
            Self::NoStateDirectory => f.write_str("--principal-uids: there is no place to remember them"),
            Self::Users(error) => write!(f, "--principal-uids: {error}"),
        }
    }
}
