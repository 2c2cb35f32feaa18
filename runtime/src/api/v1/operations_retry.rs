//! `POST /v1/operations/{operation_id}/retry`: queues a failed operation again, if it still has the version its client saw.

use axum::Json;
use axum::extract::State;

use super::super::answers::OperationBody;
use super::super::app::Principal;
use super::super::body::JsonBody;
use super::super::fields::read_object;
use super::super::problem::Problem;
use super::super::state::Api;
use super::members::{self, OperationId};

/// Answers 200 with the operation as it is now, 404, or 409 for another version or a state that does not allow it.
pub(crate) async fn handle(
    State(api): State<Api>,
    by: Principal,
    OperationId(id): OperationId,
    JsonBody(body): JsonBody,
) -> Result<Json<OperationBody>, Problem> {
    let expected_version = read_object(&body, members::expected_version)?;
    Ok(Json(api.app()?.retry(by, id, expected_version).await?.into()))
}
