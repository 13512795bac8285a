//! An HTTP sink: a batch is one POST of JSON lines, and a status of 2xx is its acknowledgement.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url, redirect};

use super::address::SinkAddress;
use super::delivery::DeliveryError;
use super::follower::Batch;

/// How long connecting may take. The answer has the limit of every delivery.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Http {
    client: Client,
    url: Url,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl Http {
    pub(super) fn new(
        url: Url,
        token: Option<&str>,
        tls: rustls::ClientConfig,
    ) -> Result<Self, DeliveryError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| DeliveryError::Http("the token cannot be sent".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = Client::builder()
            .http1_only()
            .connect_timeout(CONNECT_WITHIN)
            .default_headers(headers)
            // The records and the token are for this address alone.
            .redirect(redirect::Policy::none())
            .referer(false)
            .user_agent(concat!("ringfence/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls);
        if SinkAddress::Http(url.clone()).is_here() {
            // A proxy that the environment names would see what plain HTTP carries.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| explain(&error))?;
        Ok(Self { client, url })
    }

    pub(super) async fn send(&self, batch: &Batch) -> Result<(), DeliveryError> {
        let mut body = Vec::new();
        for line in &batch.lines {
            body.extend_from_slice(line);
            body.push(b'\n');
        }
        let answer = self.client.post(self.url.clone()).body(body).send().await;
        let status = answer.map_err(|error| explain(&error))?.status();
        if status.is_success() { Ok(()) } else { Err(DeliveryError::Status(status.as_u16())) }
    }
}

/// The root cause, without the URL, which may hold a key.
fn explain(error: &reqwest::Error) -> DeliveryError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let is_without_cause = std::ptr::addr_eq(cause, error);
    DeliveryError::Http(if is_without_cause { "the request failed".to_owned() } else { cause.to_string() })
}
