//! Request bodies: how many bytes, how slowly, and of which media type.
//!
//! [`LimitedBody`] wraps what the connection delivers and fails when it is too large or too slow; [`JsonBody`] collects
//! it and reads it as strict JSON. A body that no handler asks for is never read, so a stray one on a GET costs nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde_json::Value;

use super::faults::{Fault, Faults};
use super::json;
use super::limits::{Alarm, ServerLimits};
use super::problem::Problem;

/// Why a body cannot be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    /// More bytes than [`ServerLimits::body_bytes_max`].
    #[error("the body is too large")]
    TooLarge,
    /// A gap between two parts, or the whole, took too long.
    #[error("the body is too slow")]
    TooSlow,
    /// The connection broke, or its framing did.
    #[error("the body broke off")]
    Broken,
}

impl From<BodyFault> for Problem {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::TooLarge => Self::body_too_large(),
            BodyFault::TooSlow => Self::request_timeout(),
            BodyFault::Broken => Self::malformed_request(),
        }
    }
}

/// A body that keeps the server's limits. It can be read once; the first fault ends it.
pub(crate) struct LimitedBody<B> {
    inner: B,
    limits: Arc<ServerLimits>,
    bytes: usize,
    too_large: bool,
    gap: Alarm,
    total: Alarm,
    finished: Arc<AtomicBool>,
}

impl<B: HttpBody> LimitedBody<B> {
    /// Wraps a body. `finished` becomes true once its last byte was read, or at once if it has none.
    pub(crate) fn new(inner: B, limits: Arc<ServerLimits>, finished: Arc<AtomicBool>) -> Self {
        finished.store(inner.is_end_stream(), Ordering::Relaxed);
        let too_large = inner.size_hint().lower() > limits.body_bytes_max as u64;
        Self {
            inner,
            limits,
            bytes: 0,
            too_large,
            gap: Alarm::default(),
            total: Alarm::default(),
            finished,
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for LimitedBody<B> {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = self.get_mut();
        if this.too_large {
            return Poll::Ready(Some(Err(BodyFault::TooLarge)));
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.gap.clear();
                this.bytes = this.bytes.saturating_add(frame.data_ref().map_or(0, Bytes::len));
                if this.bytes > this.limits.body_bytes_max {
                    this.too_large = true;
                    return Poll::Ready(Some(Err(BodyFault::TooLarge)));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(BodyFault::Broken))),
            Poll::Ready(None) => {
                this.finished.store(true, Ordering::Relaxed);
                Poll::Ready(None)
            }
            Poll::Pending => {
                this.gap.arm(this.limits.body_gap);
                this.total.arm(this.limits.body_total);
                // Both are polled, so that both wake this task.
                let (gap, total) = (this.gap.rings(cx), this.total.rings(cx));
                if gap || total {
                    Poll::Ready(Some(Err(BodyFault::TooSlow)))
                } else {
                    Poll::Pending
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A request body read as strict JSON.
pub(crate) struct JsonBody(pub(crate) Value);

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = collect(body).await?;
        let invalid = |fault| Problem::invalid_request(&Faults::one(fault));
        if bytes.is_empty() {
            return Err(invalid(Fault::missing(vec!["body".into()])));
        }
        if !is_json(&parts.headers) {
            let msg = "content type must be application/json";
            return Err(invalid(Fault::value_error(msg, vec!["body".into()])));
        }
        json::parse(&bytes).map(Self).map_err(invalid)
    }
}

async fn collect(body: Body) -> Result<Bytes, Problem> {
    match body.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) => {
            let fault = error.into_inner().downcast_ref().copied();
            Err(fault.unwrap_or(BodyFault::Broken).into())
        }
    }
}

/// Whether exactly one content type is given, and it is JSON in UTF-8.
fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let Ok(text) = value.to_str() else { return false };
    let mut parts = text.split(';').map(str::trim);
    if !parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case("application/json"))
    {
        return false;
    }
    parts.filter(|part| !part.is_empty()).all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // Other parameters mean nothing for JSON (RFC 8259, section 11).
        !name.eq_ignore_ascii_case("charset") || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_json_in_utf_8_is_a_json_content_type() {
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_TYPE, HeaderValue::from_str(value).expect("a value"));
            }
            is_json(&headers)
        };
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; charset=utf-8; profile=x",
            "application/json;",
        ] {
            assert!(with(&[good]), "{good}");
        }
        for bad in [
            &[][..],
            &[""],
            &["text/plain"],
            &["text/json"],
            &["application/jsonp"],
            &["application/json, text/plain"],
            &["application/json; charset=latin1"],
            &["application/json; charset"],
            &["application/json", "application/json"],
        ] {
            assert!(!with(bad), "{bad:?}");
        }
    }
}
