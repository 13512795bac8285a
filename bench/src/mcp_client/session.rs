//! A session with any leg: measurements use this and do not know the transport.

use std::time::Instant;

use crate::error::Error;
use crate::mcp_client::http_session::{HttpEndpoint, HttpSession};
use crate::mcp_client::stdio_session::{StdioEndpoint, StdioSession};

#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Http(HttpEndpoint),
    Stdio(StdioEndpoint),
}

#[derive(Debug)]
pub(crate) enum McpSession {
    Http(Box<HttpSession>),
    Stdio(Box<StdioSession>),
}

impl McpSession {
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        match endpoint {
            Endpoint::Http(endpoint) => Ok(Self::Http(Box::new(HttpSession::open(endpoint).await?))),
            Endpoint::Stdio(endpoint) => Ok(Self::Stdio(Box::new(StdioSession::open(endpoint).await?))),
        }
    }

    pub(crate) async fn call_echo(&mut self) -> Result<(), Error> {
        match self {
            Self::Http(session) => session.call_echo().await,
            Self::Stdio(session) => session.call_echo().await,
        }
    }

    pub(crate) async fn call_echo_until(&mut self, deadline: Instant) -> Result<u32, Error> {
        match self {
            Self::Http(session) => session.call_echo_until(deadline).await,
            Self::Stdio(session) => session.call_echo_until(deadline).await,
        }
    }

    pub(crate) async fn call_big(&mut self, bytes: u32) -> Result<(), Error> {
        match self {
            Self::Http(session) => session.call_big(bytes).await,
            Self::Stdio(session) => session.call_big(bytes).await,
        }
    }

    /// Splits the session into lanes that together keep `in_flight` calls in flight: connections for HTTP,
    /// one pipelined lane for stdio. The first lane is the one to `close`.
    pub(crate) async fn into_lanes(self, in_flight: u32) -> Result<Vec<Self>, Error> {
        match self {
            Self::Stdio(session) => Ok(vec![Self::Stdio(Box::new(session.with_depth(in_flight)))]),
            Self::Http(session) => {
                let mut siblings = Vec::new();
                for lane in 1..in_flight {
                    siblings.push(Self::Http(Box::new(session.sibling(lane).await?)));
                }
                siblings.insert(0, Self::Http(session));
                Ok(siblings)
            }
        }
    }

    /// The server process behind a direct session; `None` for HTTP.
    pub(crate) fn server_process_id(&self) -> Option<u32> {
        match self {
            Self::Http(_) => None,
            Self::Stdio(session) => session.process_id(),
        }
    }

    pub(crate) async fn close(self) -> Result<(), Error> {
        match self {
            Self::Http(session) => session.close().await,
            Self::Stdio(session) => session.close().await,
        }
    }
}
