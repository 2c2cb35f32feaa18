//! `POST /v1/memory/search`: finds active entries.

use axum::Json;
use axum::extract::State;
use powercontext_core::limits::{QUERY_CHARS_MAX, SEARCH_HITS_MAX};

use super::super::answers::SearchBody;
use super::super::app::{Search, SearchMode};
use super::super::body::JsonBody;
use super::super::faults::Read;
use super::super::fields::{Fields, IntRange, TextRange, read_object};
use super::super::problem::Problem;
use super::super::state::Api;
use super::members;

const QUERY: TextRange = TextRange {
    min: 1,
    max: QUERY_CHARS_MAX,
};
const LIMIT: IntRange = IntRange {
    min: 1,
    max: SEARCH_HITS_MAX as i64,
};
const LIMIT_DEFAULT: u64 = 10;

fn read(fields: &mut Fields<'_>) -> Read<Search> {
    let scope_id = members::scope_id(fields);
    let query = fields.text("query", QUERY);
    let limit = fields.int_or("limit", LIMIT, LIMIT_DEFAULT);
    let modes = SearchMode::ALL.map(|mode| (mode.wire(), mode));
    let mode = fields.choice_or("mode", &modes, SearchMode::Auto);
    Ok(Search {
        scope_id: scope_id?,
        query: query?,
        limit: u32::try_from(limit?).unwrap_or(SEARCH_HITS_MAX),
        mode: mode?,
    })
}

/// Answers 200; an unknown scope has no hits.
pub(crate) async fn handle(State(api): State<Api>, JsonBody(body): JsonBody) -> Result<Json<SearchBody>, Problem> {
    let search = read_object(&body, read)?;
    Ok(Json(api.app()?.search(search).await?.into()))
}
