//! A response body of known length in a few pieces, so that a large result is sent without joining them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use wire::Text;

struct PiecesBody {
    /// In reverse order: the next piece is popped from the end.
    pieces: Vec<Bytes>,
    left: u64,
}

/// The body that carries a message's text.
pub(crate) fn text_body(text: Text) -> Body {
    let left = text.len() as u64;
    let mut pieces: Vec<Bytes> = text.into_pieces().collect();
    if pieces.len() == 1
        && let Some(whole) = pieces.pop()
    {
        return Body::from(whole);
    }
    pieces.reverse();
    Body::new(PiecesBody { pieces, left })
}

impl HttpBody for PiecesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }
}
