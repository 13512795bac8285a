//! Asks running gateways as their operator: through the unix socket of each, with its token.

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::discovery::{self, Discovered};
use crate::error::Error;
use crate::operator_socket::ReachedDirectory;

/// Longer than the grace time that a session may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends requests to one gateway with the operator's token.
pub(crate) struct OperatorClient<'a> {
    pub(crate) discovered: Discovered,
    runtime: &'a Runtime,
    /// Through the operator's own listener, which answers whatever clients do. With the directory that it is in.
    at_socket: Option<(reqwest::Client, ReachedDirectory)>,
    at_url: reqwest::Client,
}

impl<'a> OperatorClient<'a> {
    /// One for each gateway that this user runs.
    pub(crate) fn all(own: &Path, runtime: &'a Runtime) -> Result<Vec<Self>, Error> {
        discovery::running(own).into_iter().map(|gateway| Self::new(gateway, own, runtime)).collect()
    }

    /// `own` is ringfence's own directory.
    pub(crate) fn new(discovered: Discovered, own: &Path, runtime: &'a Runtime) -> Result<Self, Error> {
        let at_socket = match &discovered.socket {
            Some(name) => {
                let directory = ReachedDirectory::open(&discovery::directory_in(own))?;
                let client = build(http_client()?.unix_socket(directory.path_of(name)))?;
                Some((client, directory))
            }
            None => None,
        };
        Ok(Self { discovered, runtime, at_socket, at_url: build(http_client()?)? })
    }

    /// Returns `None` if the gateway does not answer, and prints that.
    pub(crate) fn ask(&self, asked: &Asked) -> Option<Answer> {
        match self.runtime.block_on(self.answer(asked)) {
            Ok(answer) => Some(answer),
            Err(error) => {
                eprintln!(
                    "ringfence: the gateway at {} does not answer: {}",
                    self.discovered.url,
                    root_cause(&error)
                );
                None
            }
        }
    }

    /// Sends a request to the operator's own listener. Returns the status, and the answer or null.
    pub(crate) fn ask_at_socket(&self, method: Method, path: &str) -> Result<(StatusCode, Value), String> {
        let (client, _) = self.at_socket.as_ref().ok_or("it has no socket for the operator")?;
        let request = client.request(method, format!("http://localhost{path}"));
        let asked = self.runtime.block_on(async {
            let response = request.bearer_auth(&self.discovered.token).send().await?;
            Ok((response.status(), response.bytes().await?))
        });
        let (status, body) = asked.map_err(|error: reqwest::Error| root_cause(&error))?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn answer(&self, asked: &Asked) -> reqwest::Result<Answer> {
        let path = &asked.path;
        let separator = if path.is_empty() || path.starts_with('?') { "" } else { "/" };
        let request = |client: &reqwest::Client, base: &str| {
            let url = format!("{base}/sessions{separator}{path}");
            let request = client.request(asked.method.clone(), url).bearer_auth(&self.discovered.token);
            match &asked.body {
                Some(body) => request.header("content-type", "application/json").body(body.to_string()),
                None => request,
            }
        };
        if let Some((client, _)) = &self.at_socket {
            // The name is for the Host header alone.
            match answer(request(client, "http://localhost")).await {
                Err(error) if error.is_connect() => {}
                answered => return answered,
            }
        }
        answer(request(&self.at_url, &self.discovered.url)).await
    }
}

fn http_client() -> Result<reqwest::ClientBuilder, Error> {
    let builder = reqwest::Client::builder()
        .timeout(PATIENCE)
        .tls_backend_preconfigured(upstream::http::tls().map_err(std::io::Error::other)?)
        // The gateways are on this host, and a proxy must not see the token.
        .no_proxy();
    Ok(builder)
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, Error> {
    Ok(builder.build().map_err(std::io::Error::other)?)
}

async fn answer(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let status = response.status();
    if status == StatusCode::NOT_FOUND {
        return Ok(Answer::Unknown);
    }
    if status != StatusCode::BAD_REQUEST {
        let body = response.error_for_status()?.bytes().await?;
        return Ok(serde_json::from_slice(&body).map_or(Answer::Unknown, Answer::Found));
    }
    let body: Value = serde_json::from_slice(&response.bytes().await?).unwrap_or_default();
    Ok(Answer::Refused(text(&body["error"]["message"])))
}

/// What a gateway is asked.
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// Below `/sessions`, or a query.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

impl Asked {
    pub(crate) fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), body: None }
    }
}

pub(crate) enum Answer {
    Found(Value),
    /// The gateway has no such session.
    Unknown,
    Refused(String),
}

/// The first cause, such as "connection refused": the errors above it only say that a request failed.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Replaces control characters: clients choose these texts, and must not control the terminal.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
