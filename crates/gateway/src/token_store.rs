//! The tokens of all callers, and whether callers need one.

use std::path::PathBuf;
use std::sync::Arc;

use crate::reloaded::Reloaded;
use crate::token_file::{Known, TokenFile, TokenFileError, TokenTable};

/// Whether callers need a token.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// Every caller is `anonymous`.
    Open,
    Tokens(TokenStore),
}

/// The tokens of a file, reloaded when it changes.
#[derive(Clone, Debug)]
pub struct TokenStore {
    file: Arc<Reloaded<TokenFile>>,
}

impl TokenStore {
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        Ok(Self { file: Arc::new(Reloaded::new(TokenFile::at(path))?) })
    }

    pub(crate) fn find(&self, token: &[u8]) -> Option<Known> {
        self.current().find(token)
    }

    /// All tokens, at most a second old.
    pub(crate) fn current(&self) -> Arc<TokenTable> {
        self.file.current()
    }
}
