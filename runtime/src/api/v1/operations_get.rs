//! `GET /v1/operations/{operation_id}`: one operation. Query parameters and a body are ignored, because the official
//! client sends the id a second time.

use axum::Json;
use axum::extract::State;

use super::super::answers::OperationBody;
use super::super::problem::Problem;
use super::super::state::Api;
use super::members::OperationId;

/// Answers 200, or 404 for an unknown operation and for one of an internal kind.
pub(crate) async fn handle(
    State(api): State<Api>,
    OperationId(id): OperationId,
) -> Result<Json<OperationBody>, Problem> {
    Ok(Json(api.app()?.operation(id).await?.into()))
}
