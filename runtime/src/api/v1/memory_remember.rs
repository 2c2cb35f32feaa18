//! `POST /v1/memory/remember`: adds an entry by hand.

use axum::Json;
use axum::extract::State;

use super::super::answers::MutationBody;
use super::super::app::{NewEntry, Principal};
use super::super::body::JsonBody;
use super::super::faults::Read;
use super::super::fields::{Fields, IntRange, read_object};
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

fn read(fields: &mut Fields<'_>) -> Read<NewEntry> {
    let scope_id = members::scope_id(fields);
    let kind = members::kind(fields);
    let text = members::text(fields);
    let reason = members::reason(fields);
    let expected_revision = fields.int_or_null("expected_revision", IntRange::REVISION);
    Ok(NewEntry {
        scope_id: scope_id?,
        kind: kind?,
        text: text?,
        reason: reason?,
        expected_revision: expected_revision?.map(members::revision_of).transpose()?,
    })
}

/// Answers 200 with the new head and the entry.
pub(crate) async fn handle(
    State(api): State<Api>,
    by: Principal,
    JsonBody(body): JsonBody,
) -> Result<Json<MutationBody>, Problem> {
    let entry = read_object(&body, read)?;
    Ok(Json(api.app()?.remember(by, entry).await?.into()))
}
