//! `POST /v1/memory/entries/get`: one exact entry version.

use axum::Json;
use axum::extract::State;

use super::super::answers::EntryBody;
use super::super::body::JsonBody;
use super::super::fields::read_object;
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

/// Answers 200, or 404 for a scope without Memory, an unknown entry or version.
pub(crate) async fn handle(State(api): State<Api>, JsonBody(body): JsonBody) -> Result<Json<EntryBody>, Problem> {
    let (scope_id, citation) = read_object(&body, |fields| {
        let scope_id = members::scope_id(fields);
        let citation = members::citation(fields);
        Ok((scope_id?, citation?))
    })?;
    Ok(Json(api.app()?.get_entry(&scope_id, &citation).await?.into()))
}
