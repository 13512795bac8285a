//! A response's body, which knows when the request that it answers is over.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::places::{Busy, PrincipalRequest};

/// Counts the request of a principal until the body of its response has been sent. A handler leaves it in the
/// extensions of its response.
#[derive(Clone, Debug)]
pub(crate) struct Counted(#[allow(dead_code, reason = "held, not used")] pub(crate) Arc<PrincipalRequest>);

#[derive(Debug)]
pub(crate) struct ServedBody {
    body: Body,
    _busy: Busy,
    _counted: Option<Counted>,
}

impl ServedBody {
    /// Keeps the connection busy until the body of the response has been sent.
    pub(crate) fn of(mut response: Response, busy: Busy) -> axum::http::Response<Self> {
        let counted = response.extensions_mut().remove();
        response.map(|body| Self { body, _busy: busy, _counted: counted })
    }
}

impl HttpBody for ServedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
