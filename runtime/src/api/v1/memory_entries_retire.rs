//! `POST /v1/memory/entries/retire`: makes an entry inactive that the head cites.

use axum::Json;
use axum::extract::State;

use super::super::answers::MutationBody;
use super::super::app::{EntryRetirement, Principal};
use super::super::body::JsonBody;
use super::super::faults::Read;
use super::super::fields::{Fields, read_object};
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

fn read(fields: &mut Fields<'_>) -> Read<EntryRetirement> {
    let scope_id = members::scope_id(fields);
    let citation = members::citation(fields);
    let reason = members::reason(fields);
    Ok(EntryRetirement {
        scope_id: scope_id?,
        citation: citation?,
        reason: reason?,
    })
}

/// Answers 200 with the new head and the entry.
pub(crate) async fn handle(
    State(api): State<Api>,
    by: Principal,
    JsonBody(body): JsonBody,
) -> Result<Json<MutationBody>, Problem> {
    let retirement = read_object(&body, read)?;
    Ok(Json(api.app()?.retire(by, retirement).await?.into()))
}
