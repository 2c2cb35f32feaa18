//! The request id: 16 lower-case hex digits on every answer, for telling one request from another in logs.
//!
//! The server makes it; nothing that a client sends becomes part of it.

use http::{HeaderName, HeaderValue};

use crate::rt;

/// The header that carries it, on every answer of every status.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-powercontext-request-id");

/// Id of one request. It is also the id of the request's span, so it is never all zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A new id.
    pub fn random() -> Self {
        let bits = u64::from(rt::random()) << 32 | u64::from(rt::random());
        Self(format!("{:016x}", bits.max(1)))
    }

    /// The 16 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the header.
    pub fn to_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("hex digits are a header value")
    }
}
