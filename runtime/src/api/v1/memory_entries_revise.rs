//! `POST /v1/memory/entries/revise`: replaces kind and text of an entry that the head cites.

use axum::Json;
use axum::extract::State;

use super::super::answers::MutationBody;
use super::super::app::{EntryRevision, Principal};
use super::super::body::JsonBody;
use super::super::faults::Read;
use super::super::fields::{Fields, read_object};
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

fn read(fields: &mut Fields<'_>) -> Read<EntryRevision> {
    let scope_id = members::scope_id(fields);
    let citation = members::citation(fields);
    let kind = members::kind(fields);
    let text = members::text(fields);
    let reason = members::reason(fields);
    Ok(EntryRevision {
        scope_id: scope_id?,
        citation: citation?,
        kind: kind?,
        text: text?,
        reason: reason?,
    })
}

/// Answers 200 with the new head and the entry.
pub(crate) async fn handle(
    State(api): State<Api>,
    by: Principal,
    JsonBody(body): JsonBody,
) -> Result<Json<MutationBody>, Problem> {
    let revision = read_object(&body, read)?;
    Ok(Json(api.app()?.revise(by, revision).await?.into()))
}
