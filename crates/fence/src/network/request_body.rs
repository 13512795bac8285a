//! Forwards the body of one plain HTTP request, and not a byte more: what the client sends after it is never read as
//! part of another message.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::splice::Activity;

/// A line with the length of a chunk, extensions included.
const LONGEST_CHUNK_LINE: usize = 1024;

/// All trailers together.
const LONGEST_TRAILERS: usize = 16 * 1024;

/// How long a body is, by the head of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    None,
    Bytes(u64),
    Chunked,
}

/// Why a body was not carried to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the client did not send its whole request")]
    Client(#[source] io::Error),
    #[error("the client sent a bad chunk")]
    BadChunk,
    /// The server takes no more of it, but may well answer.
    #[error("the server did not take the whole request")]
    Server(#[source] io::Error),
}

/// Carries the body. Chunks are framed anew, so that the server cannot see other boundaries than we do;
/// their extensions and the trailers are dropped.
pub(super) async fn relay(
    body: BodyLength,
    client: &mut (impl AsyncBufRead + Unpin),
    server: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> Result<(), BodyError> {
    match body {
        BodyLength::None => Ok(()),
        BodyLength::Bytes(length) => copy(length, Framing::Plain, client, server, activity).await,
        BodyLength::Chunked => relay_chunks(client, server, activity).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Plain,
    Chunks,
}

async fn relay_chunks(
    client: &mut (impl AsyncBufRead + Unpin),
    server: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> Result<(), BodyError> {
    loop {
        let length = chunk_length(&read_line(client, LONGEST_CHUNK_LINE).await?)?;
        if length == 0 {
            break;
        }
        copy(length, Framing::Chunks, client, server, activity).await?;
        if !read_line(client, 2).await?.is_empty() {
            return Err(BodyError::BadChunk);
        }
    }
    skip_trailers(client).await?;
    server.write_all(b"0\r\n\r\n").await.map_err(BodyError::Server)?;
    activity.note();
    Ok(())
}

/// Copies exactly so many bytes.
async fn copy(
    length: u64,
    framing: Framing,
    client: &mut (impl AsyncBufRead + Unpin),
    server: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> Result<(), BodyError> {
    let mut remaining = length;
    while remaining > 0 {
        let available = client.fill_buf().await.map_err(BodyError::Client)?;
        let taken = available.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        if taken == 0 {
            return Err(BodyError::Client(io::ErrorKind::UnexpectedEof.into()));
        }
        activity.note();
        let written = match framing {
            Framing::Plain => server.write_all(&available[..taken]).await,
            Framing::Chunks => server.write_all(&as_chunk(&available[..taken])).await,
        };
        written.map_err(BodyError::Server)?;
        activity.note();
        client.consume(taken);
        remaining -= taken as u64;
    }
    Ok(())
}

/// In one piece, so that it is one write.
fn as_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// A line without its CR LF. A line that ends otherwise, or is longer, is a bad chunk.
async fn read_line(client: &mut (impl AsyncBufRead + Unpin), longest: usize) -> Result<Vec<u8>, BodyError> {
    let mut line = Vec::new();
    let mut limited = client.take(longest as u64);
    limited.read_until(b'\n', &mut line).await.map_err(BodyError::Client)?;
    match line.strip_suffix(b"\r\n") {
        Some(content) => Ok(content.to_vec()),
        None => Err(BodyError::BadChunk),
    }
}

fn chunk_length(line: &[u8]) -> Result<u64, BodyError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(BodyError::BadChunk);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| BodyError::BadChunk)?;
    u64::from_str_radix(digits, 16).map_err(|_| BodyError::BadChunk)
}

async fn skip_trailers(client: &mut (impl AsyncBufRead + Unpin)) -> Result<(), BodyError> {
    let mut left = LONGEST_TRAILERS;
    loop {
        let line = read_line(client, left).await?;
        if line.is_empty() {
            return Ok(());
        }
        left = left.saturating_sub(line.len() + 2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What reaches the server, and what is left of the client's bytes.
    async fn relayed(body: BodyLength, mut sent: &[u8]) -> Result<(String, String), BodyError> {
        let mut server = Vec::new();
        relay(body, &mut sent, &mut server, &Activity::new()).await?;
        Ok((String::from_utf8(server).unwrap(), String::from_utf8(sent.to_vec()).unwrap()))
    }

    fn both(server: &str, left: &str) -> (String, String) {
        (server.to_owned(), left.to_owned())
    }

    #[tokio::test]
    async fn exactly_the_stated_length_is_carried() {
        assert_eq!(relayed(BodyLength::Bytes(3), b"abcGET /").await.unwrap(), both("abc", "GET /"));
        assert_eq!(relayed(BodyLength::None, b"GET /").await.unwrap(), both("", "GET /"));
        assert!(matches!(relayed(BodyLength::Bytes(4), b"abc").await, Err(BodyError::Client(_))));
    }

    #[tokio::test]
    async fn chunks_are_framed_anew_without_extensions_and_trailers() {
        let sent = b"3;name=value\r\nabc\r\n00A \r\n0123456789\r\n0\r\nHost: other\r\n\r\nGET /";
        let expected = both("3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n", "GET /");
        assert_eq!(relayed(BodyLength::Chunked, sent).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn bad_chunks_end_the_request() {
        let long_trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(4000));
        let bad: [&[u8]; 10] = [
            b"",
            b"\r\n",
            b"3\nabc\r\n0\r\n\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"-3\r\nabc",
            b"0x3\r\nabc",
            b"10000000000000000\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            long_trailers.as_bytes(),
        ];
        for sent in bad {
            let result = relayed(BodyLength::Chunked, sent).await;
            assert!(matches!(result, Err(BodyError::BadChunk)), "{:?}", String::from_utf8_lossy(sent));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_carried_as_whole_chunks_or_refused(sent in any::<Vec<u8>>()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (mut client, mut server, activity) = (&sent[..], Vec::new(), Activity::new());
            let carried = runtime.block_on(relay(BodyLength::Chunked, &mut client, &mut server, &activity));
            if carried.is_ok() {
                prop_assert!(server.ends_with(b"0\r\n\r\n"));
            }
        }
    }
}
