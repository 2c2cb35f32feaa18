//! Whether the bytes at the start of a connection are a request that this server takes on.
//!
//! hyper would silently drop a `Content-Length` beside a `Transfer-Encoding`, and answers what it cannot parse with an
//! empty body. Both differ from what the contract promises, and two readers that disagree about where a request ends are
//! how requests get smuggled. So the head is checked here first; hyper only ever sees heads that passed.

use http::StatusCode;

use super::super::limits::{HEADER_FIELDS_MAX, ServerLimits};
use super::super::problem::Problem;

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes, possibly none.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// A complete and acceptable head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Its length, with the empty line.
    pub(super) bytes: usize,
    /// Where its body ends.
    pub(super) framing: Framing,
}

/// Why a request is not taken on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadFault {
    /// No HTTP/1.1 request, or one whose body has no certain end.
    Malformed,
    /// The request target alone passes the limit.
    TargetTooLong,
    /// The header passes a limit.
    TooLarge,
    /// The header did not arrive in time.
    TooSlow,
}

impl HeadFault {
    /// The answer.
    pub(super) fn problem(self) -> Problem {
        match self {
            Self::Malformed => Problem::malformed_request(),
            Self::TargetTooLong => Problem::target_too_long(),
            Self::TooLarge => Problem::header_too_large(),
            Self::TooSlow => Problem::request_timeout(),
        }
    }
}

/// Looks for a head at the start of `bytes`, of which the first `scanned` are known not to end one. `Ok(None)` asks for
/// more bytes.
pub(super) fn check(bytes: &[u8], scanned: usize, limits: &ServerLimits) -> Result<Option<Head>, HeadFault> {
    let max = limits.head_bytes_max;
    match end_of_head(bytes, scanned) {
        Some(end) if end <= max => parse(&bytes[..end], limits).map(Some),
        Some(_) => Err(too_large(bytes, max)),
        None if bytes.len() >= max => Err(too_large(bytes, max)),
        None => Ok(None),
    }
}

fn too_large(bytes: &[u8], max: usize) -> HeadFault {
    if bytes.iter().take(max).any(|b| *b == b'\n') {
        HeadFault::TooLarge
    } else {
        HeadFault::TargetTooLong
    }
}

/// Where the first empty line ends. A head is one request, so a line break is at most three bytes from the next.
fn end_of_head(bytes: &[u8], scanned: usize) -> Option<usize> {
    let from = scanned.saturating_sub(2);
    bytes.get(from..)?.iter().enumerate().find_map(|(at, byte)| {
        if *byte != b'\n' {
            return None;
        }
        let at = from + at;
        match bytes.get(at + 1..)? {
            [b'\n', ..] => Some(at + 2),
            [b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        }
    })
}

fn parse(head: &[u8], limits: &ServerLimits) -> Result<Head, HeadFault> {
    let mut fields = [httparse::EMPTY_HEADER; HEADER_FIELDS_MAX];
    let count = limits.header_fields_max.min(HEADER_FIELDS_MAX);
    let mut request = httparse::Request::new(&mut fields[..count]);
    match request.parse(head) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => {
            let is_1_1 = request.version == Some(1);
            if request.method == Some("CONNECT") {
                return Err(HeadFault::Malformed);
            }
            let framing = framing(request.headers, is_1_1)?;
            Ok(Head { bytes, framing })
        }
        Err(httparse::Error::TooManyHeaders) => Err(HeadFault::TooLarge),
        Ok(_) | Err(_) => Err(HeadFault::Malformed),
    }
}

fn framing(fields: &[httparse::Header<'_>], is_1_1: bool) -> Result<Framing, HeadFault> {
    let values = |name: &'static str| {
        let mut found = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        (found.next().map(|field| field.value), found.next().is_some())
    };
    let (host, several_hosts) = values("host");
    let (length, several_lengths) = values("content-length");
    let (encoding, several_encodings) = values("transfer-encoding");
    if several_hosts || several_lengths || several_encodings || (is_1_1 && host.is_none()) {
        return Err(HeadFault::Malformed);
    }
    match (length, encoding) {
        (None, None) => Ok(Framing::Length(0)),
        (Some(length), None) => std::str::from_utf8(length)
            .ok()
            .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .map(Framing::Length)
            .ok_or(HeadFault::Malformed),
        (None, Some(encoding)) if is_1_1 && encoding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        _ => Err(HeadFault::Malformed),
    }
}

/// What a connection beyond the limit gets: an answer that is small enough for any socket buffer.
pub(super) fn turned_away(request_id: &str) -> String {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let body = r#"{"error":{"code":"runtime_not_ready","message":"Too many connections.","details":null}}"#;
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         x-powercontext-request-id: {request_id}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Head>, HeadFault> {
        check(text.as_bytes(), 0, &ServerLimits::default())
    }

    fn framing_of(fields: &str) -> Result<Framing, HeadFault> {
        let text = format!("POST /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        read(&text).map(|head| {
            let head = head.expect("complete");
            assert_eq!(head.bytes, text.len());
            head.framing
        })
    }

    #[test]
    fn a_body_has_exactly_one_certain_end() {
        for (fields, framing) in [
            ("", Framing::Length(0)),
            ("Content-Length: 0\r\n", Framing::Length(0)),
            ("content-length: 12\r\n", Framing::Length(12)),
            ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
            ("transfer-encoding: Chunked\r\n", Framing::Chunked),
        ] {
            assert_eq!(framing_of(fields), Ok(framing), "{fields}");
        }
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Host: b\r\n",
            " folded\r\n",
            "no colon\r\n",
            "nul: a\0b\r\n",
        ] {
            assert_eq!(framing_of(fields), Err(HeadFault::Malformed), "{fields}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "\u{16}\u{3}\u{1}\r\n\r\n",
            "GET\r\n\r\n",
            "GET /\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GE\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(read(text), Err(HeadFault::Malformed), "{text:?}");
        }
        assert!(read("GET / HTTP/1.0\r\n\r\n").is_ok(), "HTTP/1.0 needs no Host");
    }

    #[test]
    fn an_unfinished_head_asks_for_more_wherever_it_is_cut() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), Ok(None), "cut at {end}");
            let whole = check(text.as_bytes(), end, &ServerLimits::default()).map(|head| head.map(|head| head.bytes));
            assert_eq!(whole, Ok(Some(text.len())), "scanned {end}");
        }
    }

    #[test]
    fn bytes_and_fields_are_bounded() {
        let limits = ServerLimits::default();
        let sized = |bytes: usize| {
            let shell = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(bytes - shell))
        };
        assert!(matches!(read(&sized(limits.head_bytes_max)), Ok(Some(_))));
        assert_eq!(read(&sized(limits.head_bytes_max + 1)), Err(HeadFault::TooLarge));
        assert_eq!(
            read(&sized(20 * 1024)[..limits.head_bytes_max]),
            Err(HeadFault::TooLarge)
        );
        assert_eq!(
            read(&format!("GET /{}", "x".repeat(20 * 1024))),
            Err(HeadFault::TargetTooLong)
        );

        let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
        assert!(matches!(read(&fields(HEADER_FIELDS_MAX)), Ok(Some(_))));
        assert_eq!(read(&fields(HEADER_FIELDS_MAX + 1)), Err(HeadFault::TooLarge));
        assert_eq!(read(&fields(200)), Err(HeadFault::TooLarge));
    }
}
