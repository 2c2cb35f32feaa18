//! The error envelope: `{"error":{"code","message","details"}}`, and one constructor for each code of the contract.
//!
//! Every member is a constant, a bounded name, an id or a number. No text of a request, an exception or a provider can
//! get in here, because no constructor takes one.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use powercontext_core::ids::WorkId;
use serde_json::{Value, json};

use super::app::AppError;
use super::faults::{Fault, Faults};

/// Seconds after which a busy or unbound server may be asked again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// An answer that is not a success.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
    details: Value,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    const fn plain(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self {
            status,
            code,
            message,
            details: Value::Null,
            headers: Vec::new(),
        }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    fn with_retry_after(mut self, seconds: u32) -> Self {
        self.headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
        self
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// 400: bytes that are no acceptable HTTP/1.1 request.
    pub const fn malformed_request() -> Self {
        Self::plain(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "The bytes received are not an acceptable HTTP/1.1 request.",
        )
    }

    /// 401: no or a wrong bearer token.
    pub fn unauthorized() -> Self {
        let mut problem = Self::plain(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "A valid bearer token is required.",
        );
        let challenge = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        problem.headers.push(challenge);
        problem
    }

    /// 404: no such route.
    pub const fn not_found() -> Self {
        Self::plain(StatusCode::NOT_FOUND, "not_found", "There is nothing at this path.")
    }

    /// 405: the path has other methods; the router adds `Allow`.
    pub const fn method_not_allowed() -> Self {
        Self::plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "This path does not have this method.",
        )
    }

    /// 408: the client was too slow to send its request.
    pub const fn request_timeout() -> Self {
        Self::plain(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request",
            "The request did not arrive in time.",
        )
    }

    /// 413: the body is larger than the server reads.
    pub const fn body_too_large() -> Self {
        Self::plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request",
            "The request body is too large.",
        )
    }

    /// 414: the request target is longer than the server reads.
    pub const fn target_too_long() -> Self {
        Self::plain(
            StatusCode::URI_TOO_LONG,
            "invalid_request",
            "The request target is too long.",
        )
    }

    /// 431: the header is larger, or has more fields, than the server reads.
    pub const fn header_too_large() -> Self {
        Self::plain(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "invalid_request",
            "The request header is too large.",
        )
    }

    /// 422: members of the request break rules.
    pub fn invalid_request(faults: &Faults) -> Self {
        Self::plain(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_request",
            "The request is not valid.",
        )
        .with_details(json!({ "errors": faults.to_json() }))
    }

    /// 422: this deployment lacks a capability.
    pub fn capability_not_supported(capability: &'static str) -> Self {
        Self::plain(
            StatusCode::UNPROCESSABLE_ENTITY,
            "capability_not_supported",
            "This deployment does not support the capability.",
        )
        .with_details(json!({ "capability": capability }))
    }

    /// 409: a failed operation holds the lane.
    pub fn operation_blocked(id: WorkId) -> Self {
        Self::operation_ended(
            id,
            "operation_blocked",
            "A failed operation holds this work until it is retried or cancelled.",
        )
    }

    /// 409: the operation failed while its client waited.
    pub fn operation_failed(id: WorkId) -> Self {
        Self::operation_ended(id, "operation_failed", "The operation failed.")
    }

    /// 409: the operation was cancelled while its client waited.
    pub fn operation_cancelled(id: WorkId) -> Self {
        Self::operation_ended(id, "operation_cancelled", "The operation was cancelled.")
    }

    fn operation_ended(id: WorkId, code: &'static str, message: &'static str) -> Self {
        Self::plain(StatusCode::CONFLICT, code, message).with_details(json!({ "operation_id": id }))
    }

    /// 429: over the quota of this window.
    pub fn rate_limited(retry_after_seconds: u32) -> Self {
        Self::plain(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests.")
            .with_retry_after(retry_after_seconds.max(1))
    }

    /// 500: anything unforeseen.
    pub const fn internal_error() -> Self {
        Self::plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            "The server could not complete the request.",
        )
    }

    /// 503: no runtime is bound yet or any more, or its database is away.
    pub fn runtime_not_ready() -> Self {
        Self::busy(RETRY_AFTER_SECONDS)
    }

    /// 503: too busy to try.
    pub fn busy(retry_after_seconds: u32) -> Self {
        Self::plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "runtime_not_ready",
            "The server is not ready to serve this request.",
        )
        .with_retry_after(retry_after_seconds.max(1))
    }

    fn conflict(code: &'static str, message: &'static str) -> Self {
        Self::plain(StatusCode::CONFLICT, code, message)
    }

    fn missing(code: &'static str, message: &'static str) -> Self {
        Self::plain(StatusCode::NOT_FOUND, code, message)
    }
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        match error {
            AppError::OperationNotFound => Self::missing("operation_not_found", "There is no such operation."),
            AppError::ArtifactNotFound => Self::missing("artifact_not_found", "There is no such artifact or revision."),
            AppError::MemoryNotFound => Self::missing("memory_not_found", "There is no such memory entry or version."),
            AppError::SourceConflict => Self::conflict(
                "source_conflict",
                "The source id is taken by other content or metadata.",
            ),
            AppError::RevisionConflict => Self::conflict("revision_conflict", "The revision is not the current head."),
            AppError::EntryInactive => Self::conflict("memory_entry_inactive", "The memory entry is inactive."),
            AppError::OperationConflict {
                id,
                status,
                actual_version,
            } => Self::conflict(
                "operation_conflict",
                "The operation's version or state does not allow this.",
            )
            .with_details(json!({
                "operation_id": id,
                "status": status.wire(),
                "actual_version": actual_version,
            })),
            AppError::CapabilityNotSupported(capability) => Self::capability_not_supported(capability),
            AppError::Invalid { field, reason } => {
                let fault = Fault::value_error(reason, vec!["body".into(), field.into()]);
                Self::invalid_request(&Faults::one(fault))
            }
            AppError::Unavailable => Self::runtime_not_ready(),
            AppError::Busy { retry_after_seconds } => Self::busy(retry_after_seconds),
            AppError::Internal => Self::internal_error(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "error": { "code": self.code, "message": self.message, "details": self.details }
        });
        let mut response = (self.status, Json(body)).into_response();
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
