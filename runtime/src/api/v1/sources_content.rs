//! `POST /v1/sources/content`: stores one source. 202 on a replay too; nothing is derived here.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use powercontext_core::ids::SourceId;
use powercontext_core::limits::SOURCE_CONTENT_CHARS_MAX;

use super::super::answers::CapturedBody;
use super::super::app::{NewSource, Principal};
use super::super::body::JsonBody;
use super::super::faults::Read;
use super::super::fields::{Fields, TextRange, read_object};
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

const CONTENT: TextRange = TextRange {
    min: 1,
    max: SOURCE_CONTENT_CHARS_MAX,
};

fn read(fields: &mut Fields<'_>) -> Read<NewSource> {
    let scope_id = members::scope_id(fields);
    let source_id = fields.id("source_id", |text| SourceId::parse(text));
    let content = fields.text("content", CONTENT);
    let metadata = fields.open_object_or_null("metadata");
    Ok(NewSource {
        scope_id: scope_id?,
        source_id: source_id?,
        content: content?,
        metadata: metadata?,
    })
}

/// Answers 202 with the source's place in the journal.
pub(crate) async fn handle(
    State(api): State<Api>,
    by: Principal,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<CapturedBody>), Problem> {
    let source = read_object(&body, read)?;
    let captured = api.app()?.capture(by, source).await?;
    Ok((StatusCode::ACCEPTED, Json(captured.into())))
}
