//! `GET /v1/operations`: public operations, newest first, in pages.

use axum::Json;
use axum::extract::{RawQuery, State};
use powercontext_core::ids::ScopeId;
use powercontext_core::limits::OPERATIONS_PAGE_MAX;
use powercontext_core::operation::OperationKind;

use super::super::answers::OperationsBody;
use super::super::app::{OperationCursor, OperationFilter, OperationPage, OperationStatus, OperationView};
use super::super::cursor;
use super::super::fields::IntRange;
use super::super::problem::Problem;
use super::super::query::Query;
use super::super::state::Api;

const LIMIT: IntRange = IntRange {
    min: 1,
    max: OPERATIONS_PAGE_MAX as i64,
};
const LIMIT_DEFAULT: u32 = 50;

fn read(raw: Option<&str>) -> Result<(OperationFilter, OperationPage), Problem> {
    let mut query = Query::new(raw);
    let scope_id = query.id("scope_id", ScopeId::parse);
    let kind = query.choice("kind", &OperationKind::ALL.map(|kind| (kind.wire(), kind)));
    let status = query.choice("status", &OperationStatus::ALL.map(|status| (status.wire(), status)));
    let after = query.opaque("cursor", cursor::decode, "value is no cursor of this list");
    let limit = query.int_or("limit", LIMIT, LIMIT_DEFAULT);
    let request = || {
        let filter = OperationFilter {
            scope_id: scope_id?,
            kind: kind?,
            status: status?,
        };
        let page = OperationPage {
            after: after?,
            limit: limit?,
        };
        Ok((filter, page))
    };
    query.finish(request())
}

/// A full page may have another behind it, possibly an empty one.
fn next_cursor(items: &[OperationView], page: OperationPage) -> Option<String> {
    let is_full = items.len() >= usize::try_from(page.limit).unwrap_or(usize::MAX);
    let last = items.last().filter(|_| is_full)?;
    Some(cursor::encode(OperationCursor {
        created_at: last.created_at,
        id: last.id,
    }))
}

/// Answers 200 with a page.
pub(crate) async fn handle(State(api): State<Api>, RawQuery(raw): RawQuery) -> Result<Json<OperationsBody>, Problem> {
    let (filter, page) = read(raw.as_deref())?;
    let items = api.app()?.list_operations(filter, page).await?;
    let next = next_cursor(&items, page);
    Ok(Json(OperationsBody::new(items, next)))
}
