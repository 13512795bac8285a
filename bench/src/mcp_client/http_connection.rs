//! A minimal HTTP/1.1 keep-alive client connection: one request in flight, the body handed to a sink.
//!
//! A response counts as complete when its last byte is read (for server-sent events: the end of the stream).

use std::net::SocketAddr;

use memchr::memmem;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::error::{Error, WhileDoing};
use crate::mcp_client::http_response_head::{BodyFraming, ResponseHead, parse_response_head};
use crate::mcp_client::receive_buffer::ReceiveBuffer;

const BUFFER_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct HttpConnection {
    address: SocketAddr,
    stream: TcpStream,
    buffer: ReceiveBuffer,
    closed: bool,
}

impl HttpConnection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Error> {
        let stream = connect(address).await?;
        Ok(Self { address, stream, buffer: ReceiveBuffer::with_capacity(BUFFER_BYTES), closed: false })
    }

    pub(crate) fn grow_buffer(&mut self, capacity: usize) {
        self.buffer.grow_to(capacity);
    }

    /// Sends one request and reads its whole response; pieces of the body go to `body_sink`.
    pub(crate) async fn exchange(
        &mut self,
        request: &[u8],
        body_sink: impl FnMut(&[u8]),
    ) -> Result<ResponseHead, Error> {
        if self.closed {
            self.stream = connect(self.address).await?;
            self.closed = false;
        }
        self.stream.write_all(request).await.while_doing("sending a request")?;
        let head = self.read_head().await?;
        match head.framing {
            BodyFraming::Length(length) => self.read_exactly(length, body_sink).await?,
            BodyFraming::Chunked => self.read_chunks(body_sink).await?,
            BodyFraming::UntilClose => self.read_until_close(body_sink).await?,
        }
        self.closed = head.closes;
        Ok(head)
    }

    async fn read_head(&mut self) -> Result<ResponseHead, Error> {
        loop {
            if let Some(position) = memmem::find(self.buffer.available(), b"\r\n\r\n") {
                let length = position + 4;
                let head = parse_response_head(&self.buffer.available()[..length])?;
                self.buffer.consume(length);
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    async fn read_exactly(&mut self, length: usize, mut body_sink: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut missing = length;
        while missing > 0 {
            let count = self.buffer.available().len().min(missing);
            if count == 0 {
                self.fill().await?;
                continue;
            }
            body_sink(&self.buffer.available()[..count]);
            self.buffer.consume(count);
            missing -= count;
        }
        Ok(())
    }

    async fn read_chunks(&mut self, mut body_sink: impl FnMut(&[u8])) -> Result<(), Error> {
        loop {
            let size = parse_chunk_size(&self.read_line().await?)?;
            if size == 0 {
                while !self.read_line().await?.is_empty() {}
                return Ok(());
            }
            self.read_exactly(size, &mut body_sink).await?;
            if !self.read_line().await?.is_empty() {
                return Err(Error::new("chunk longer than its size"));
            }
        }
    }

    async fn read_until_close(&mut self, mut body_sink: impl FnMut(&[u8])) -> Result<(), Error> {
        loop {
            let count = self.buffer.available().len();
            body_sink(self.buffer.available());
            self.buffer.consume(count);
            if !self.buffer.fill(&mut self.stream).await? {
                return Ok(());
            }
        }
    }

    /// One line without its line end.
    async fn read_line(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(position) = memchr::memchr(b'\n', self.buffer.available()) {
                let line = &self.buffer.available()[..position];
                let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
                self.buffer.consume(position + 1);
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        if self.buffer.fill(&mut self.stream).await.while_doing("reading a response")? {
            return Ok(());
        }
        self.closed = true;
        Err(Error::new("missing answer: the server closed the connection"))
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(address).await.while_doing("connecting")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn parse_chunk_size(line: &[u8]) -> Result<usize, Error> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| usize::from_str_radix(text.trim(), 16).ok())
        .ok_or_else(|| Error::new(format!("not a chunk size: {:?}", String::from_utf8_lossy(line))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    async fn body_of(response_pieces: &'static [&'static str]) -> Result<String, Error> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            for piece in response_pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        let mut connection = HttpConnection::open(address).await?;
        let mut body = Vec::new();
        connection.exchange(b"ping", |piece| body.extend_from_slice(piece)).await?;
        server.await.unwrap();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn reads_bodies_in_every_framing() {
        let length = body_of(&["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r\nhe", "llo"]).await;
        assert_eq!(length.unwrap(), "hello");
        let chunked = body_of(&[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r",
            "\nhe\r\n3;x=y\r\nl",
            "lo\r\n0\r\n\r",
            "\n",
        ]);
        assert_eq!(chunked.await.unwrap(), "hello");
        assert_eq!(body_of(&["HTTP/1.1 200 OK\r\n\r\nhel", "lo"]).await.unwrap(), "hello");
    }

    #[tokio::test]
    async fn a_cut_answer_is_a_failure() {
        let cut = body_of(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"]).await;
        assert!(cut.unwrap_err().to_string().contains("missing answer"));
    }
}
