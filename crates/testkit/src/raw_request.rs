//! One HTTP request on a connection of its own, with exactly the headers it was given.

use std::pin::Pin;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::reply::Reply;
use crate::waiting::within_deadline;

type SendError = Box<dyn std::error::Error + Send + Sync>;

/// A request that is not sent yet. Awaiting it sends it and panics if there is no response; `send` returns the error
/// instead.
#[derive(Debug)]
#[must_use = "a request is only sent when awaited"]
pub struct RawRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RawRequest {
    /// A request whose only header is `Host`.
    pub(crate) fn new(method: Method, url: &str, body: Vec<u8>) -> Self {
        let uri: Uri = url.parse().unwrap_or_else(|error| panic!("{url} is no URL: {error}"));
        let host = uri.authority().expect("the URL names a host").to_string();
        Self { method, uri, headers: HeaderMap::new(), body }.header("host", host)
    }

    /// Sets a header and replaces earlier values. The value may hold any bytes that HTTP allows.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.insert(header_name(name), header_value(value.as_ref()));
        self
    }

    /// Adds a header and keeps others of the same name.
    pub fn additional_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.append(header_name(name), header_value(value.as_ref()));
        self
    }

    /// Removes a header, even `Host`.
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Changes the path (and query); the server stays the same.
    pub fn path(mut self, path_and_query: &str) -> Self {
        let authority = self.uri.authority().expect("the URL names a host");
        let url = format!("http://{authority}{path_and_query}");
        self.uri = url.parse().unwrap_or_else(|error| panic!("{url} is no URL: {error}"));
        self
    }

    /// Changes the verb.
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.parse().unwrap_or_else(|error| panic!("{method} is no method: {error}"));
        self
    }

    /// Sends the request. Returns once the head of the response has arrived, and the body too unless it is a stream.
    pub async fn send(self) -> Result<Reply, SendError> {
        within_deadline("the server responds", self.exchange()).await
    }

    async fn exchange(self) -> Result<Reply, SendError> {
        let address = self.uri.authority().expect("the URL names a host").as_str();
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the connection: when the response was read or the reader was dropped.
        tokio::spawn(connection);
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut request = Request::new(Full::new(Bytes::from(self.body)));
        *request.method_mut() = self.method;
        *request.uri_mut() = target.parse()?;
        *request.headers_mut() = self.headers;
        let response = sender.send_request(request).await?;
        Ok(Reply::read(response).await?)
    }
}

impl IntoFuture for RawRequest {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async {
            let what = format!("{} {}", self.method, self.uri);
            self.send().await.unwrap_or_else(|error| panic!("{what} got no response: {error}"))
        })
    }
}

fn header_name(name: &str) -> HeaderName {
    name.parse().unwrap_or_else(|error| panic!("{name:?} is no header name: {error}"))
}

fn header_value(value: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(value).unwrap_or_else(|error| panic!("{value:?} is no header value: {error}"))
}
