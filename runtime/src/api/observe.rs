//! Counting requests as they come in and go out, by operation and outcome, never by who asked or for what.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::access::Access;
use super::state::Api;
use crate::telemetry::metrics::{HttpOperation, RequestOutcome, Transport};

/// Counts a request; one whose client goes away before its answer is `cancelled`.
pub(crate) async fn observe(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_observed = Access::of(request.uri().path()).is_observed();
    let Some(metrics) = api.metrics().filter(|_| is_observed) else {
        return next.run(request).await;
    };
    let template = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str);
    let operation = HttpOperation::of(request.method().as_str(), template);
    let in_progress = metrics.request_started(Transport::Http, operation);
    let response = next.run(request).await;
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    in_progress.ended(if is_error {
        RequestOutcome::Failure
    } else {
        RequestOutcome::Success
    });
    response
}
