//! `POST /v1/memory/changes`: the revisions after a given one, with what each changed.

use axum::Json;
use axum::extract::State;

use super::super::answers::ChangesBody;
use super::super::body::JsonBody;
use super::super::fields::{IntRange, read_object};
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

/// Answers 200; 404 for a positive revision that the scope's Memory does not have.
pub(crate) async fn handle(State(api): State<Api>, JsonBody(body): JsonBody) -> Result<Json<ChangesBody>, Problem> {
    let (scope_id, since) = read_object(&body, |fields| {
        let scope_id = members::scope_id(fields);
        let since = fields.int_or_null("since_revision", IntRange::NATURAL);
        Ok((scope_id?, since?))
    })?;
    Ok(Json(api.app()?.changes(&scope_id, since).await?.into()))
}
