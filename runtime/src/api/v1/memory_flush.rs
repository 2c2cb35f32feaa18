//! `POST /v1/memory/flush`: has the pending sources of a scope processed, and waits as long as its client prefers.
//!
//! 200 when nothing was pending or the operation succeeded in time, 202 with its place when it goes on, 409 when it
//! ended badly or a failed one holds its lane.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};
use powercontext_core::ids::WorkId;

use super::super::answers::{AcceptedBody, FlushedBody};
use super::super::app::{App, AppError, FlushStart, OperationStatus, OperationView, Principal, Waited};
use super::super::body::JsonBody;
use super::super::fields::read_object;
use super::super::prefer::wait_budget;
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;
use crate::telemetry::trace::Parent;

/// Seconds after which a client that was answered 202 may look again.
const RETRY_AFTER: &str = "2";

/// Answers 200, 202 or 409.
pub(crate) async fn handle(
    State(api): State<Api>,
    by: Principal,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let scope_id = read_object(&body, members::scope_id)?;
    let app = api.app()?;
    match app.flush_begin(by, &scope_id, trace_parent(&headers)).await? {
        FlushStart::Idle { cursor, memory } => Ok(Json(FlushedBody::idle(cursor, memory)).into_response()),
        FlushStart::Blocked { id } => Err(Problem::operation_blocked(id)),
        FlushStart::Admitted { id } => match wait(&api, &*app, id, &headers).await? {
            Waited::Ended(operation) => ended(operation),
            Waited::Pending(operation) => Ok(accepted(&operation)),
            Waited::HeadFailed { head } => Err(Problem::operation_blocked(head)),
        },
    }
}

/// The client's span, if it says so in one header.
fn trace_parent(headers: &HeaderMap) -> Option<Parent> {
    let mut found = headers.get_all("traceparent").iter();
    let one = found.next().filter(|_| found.next().is_none())?;
    Parent::from_header(one.to_str().ok()?)
}

/// Waits within the preferred budget. A server that is about to end does not let its clients wait.
async fn wait(api: &Api, app: &dyn App, id: WorkId, headers: &HeaderMap) -> Result<Waited, AppError> {
    let budget = wait_budget(headers, api.waits());
    tokio::select! {
        biased;
        waited = app.wait_operation(id, budget) => waited,
        () = api.draining().cancelled() => app.operation(id).await.map(|operation| {
            if operation.status.is_terminal() {
                Waited::Ended(operation)
            } else {
                Waited::Pending(operation)
            }
        }),
    }
}

fn ended(operation: OperationView) -> Result<Response, Problem> {
    match operation.status {
        OperationStatus::Failed => Err(Problem::operation_failed(operation.id)),
        OperationStatus::Cancelled => Err(Problem::operation_cancelled(operation.id)),
        OperationStatus::Succeeded => operation
            .result
            .and_then(FlushedBody::of_result)
            .map(|body| Json(body).into_response())
            .ok_or_else(Problem::internal_error),
        OperationStatus::Queued
        | OperationStatus::Running
        | OperationStatus::RetryWait
        | OperationStatus::Cancelling => Ok(accepted(&operation)),
    }
}

fn accepted(operation: &OperationView) -> Response {
    let body = AcceptedBody::of(operation);
    let headers = [
        (header::LOCATION, body.status_url().to_owned()),
        (header::RETRY_AFTER, RETRY_AFTER.to_owned()),
    ];
    (StatusCode::ACCEPTED, headers, Json(body)).into_response()
}
