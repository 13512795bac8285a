//! Parses the status line and headers of an HTTP/1.1 response, as far as the load client needs them.

use crate::error::Error;

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    Length(usize),
    Chunked,
    UntilClose,
}

#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) framing: BodyFraming,
    pub(crate) session_id: Option<String>,
    pub(crate) closes: bool,
}

/// Parses the bytes up to and including the empty line.
pub(crate) fn parse_response_head(bytes: &[u8]) -> Result<ResponseHead, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::new("response head is not UTF-8"))?;
    let mut lines = text.split("\r\n");
    let status = parse_status_line(lines.next().unwrap_or_default())?;
    let mut head = ResponseHead { status, framing: BodyFraming::UntilClose, session_id: None, closes: false };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) =
            line.split_once(':').ok_or_else(|| Error::new("response header without colon"))?;
        apply_header(&mut head, name, value.trim())?;
    }
    if status == 204 {
        head.framing = BodyFraming::Length(0);
    }
    head.closes |= head.framing == BodyFraming::UntilClose;
    Ok(head)
}

fn parse_status_line(line: &str) -> Result<u16, Error> {
    line.strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| Error::new(format!("not an HTTP/1.1 status line: {line:?}")))
}

fn apply_header(head: &mut ResponseHead, name: &str, value: &str) -> Result<(), Error> {
    // Compares lengths first: most headers are none of these, and this runs for every answer.
    match name.len() {
        14 if name.eq_ignore_ascii_case("content-length") => {
            let length = value.parse().map_err(|_| Error::new(format!("Content-Length {value:?}")))?;
            head.framing = BodyFraming::Length(length);
        }
        17 if name.eq_ignore_ascii_case("transfer-encoding") => head.framing = BodyFraming::Chunked,
        14 if name.eq_ignore_ascii_case("mcp-session-id") => head.session_id = Some(value.to_owned()),
        10 if name.eq_ignore_ascii_case("connection") => head.closes |= value.eq_ignore_ascii_case("close"),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_length_session_and_close() {
        let head = parse_response_head(
            b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nMcp-Session-Id: abc\r\nConnection: close\r\n\r\n",
        )
        .unwrap();
        assert_eq!((head.status, head.framing), (200, BodyFraming::Length(12)));
        assert_eq!(head.session_id.as_deref(), Some("abc"));
        assert!(head.closes);
    }

    #[test]
    fn chunked_keeps_the_connection() {
        let head =
            parse_response_head(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        assert_eq!(head.framing, BodyFraming::Chunked);
        assert!(!head.closes);
    }

    #[test]
    fn neither_length_nor_chunks_reads_until_close() {
        let head = parse_response_head(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(head.closes);
        parse_response_head(b"nonsense\r\n\r\n").unwrap_err();
    }
}
