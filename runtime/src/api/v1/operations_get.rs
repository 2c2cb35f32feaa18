//! `GET /v1/operations/{operation_id}`: one operation. Query parameters and a body are ignored, because the official
//! client sends the id a second time.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};

use super::super::access::Unfinished;
use super::super::answers::OperationBody;
use super::super::problem::Problem;
use super::super::state::Api;
use super::members::OperationId;

/// Answers 200, or 404 for an unknown operation and for one of an internal kind.
pub(crate) async fn handle(State(api): State<Api>, OperationId(id): OperationId) -> Result<Response, Problem> {
    let operation = api.app()?.operation(id).await?;
    let goes_on = !operation.status.is_terminal();
    let mut response = Json(OperationBody::from(operation)).into_response();
    if goes_on {
        response.extensions_mut().insert(Unfinished);
    }
    Ok(response)
}
