//! `POST /v1/memory/entries/list`: every entry of a scope at its Memory's head.

use axum::Json;
use axum::extract::State;

use super::super::answers::EntriesBody;
use super::super::body::JsonBody;
use super::super::fields::read_object;
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

/// Answers 200; an unknown scope has no entries.
pub(crate) async fn handle(State(api): State<Api>, JsonBody(body): JsonBody) -> Result<Json<EntriesBody>, Problem> {
    let (scope_id, include_inactive) = read_object(&body, |fields| {
        let scope_id = members::scope_id(fields);
        let include_inactive = fields.flag_or("include_inactive", false);
        Ok((scope_id?, include_inactive?))
    })?;
    let entries = api.app()?.list_entries(&scope_id, include_inactive).await?;
    Ok(Json(entries.into()))
}
