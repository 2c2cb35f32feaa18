//! Which paths there are. Each role gets the routes it may have and no others.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use super::problem::Problem;
use super::state::Api;
use super::{access, health, metrics, observe, v1};

/// Routes of the roles `all` and `api`.
pub fn full(api: Api) -> Router {
    let routes = observed()
        .route("/v1/capabilities", get(v1::capabilities::handle))
        .route("/v1/sources/content", post(v1::sources_content::handle))
        .route("/v1/memory/flush", post(v1::memory_flush::handle))
        .route("/v1/memory/remember", post(v1::memory_remember::handle))
        .route("/v1/memory/search", post(v1::memory_search::handle))
        .route("/v1/memory/entries/list", post(v1::memory_entries_list::handle))
        .route("/v1/memory/entries/get", post(v1::memory_entries_get::handle))
        .route("/v1/memory/entries/revise", post(v1::memory_entries_revise::handle))
        .route("/v1/memory/entries/retire", post(v1::memory_entries_retire::handle))
        .route("/v1/memory/changes", post(v1::memory_changes::handle))
        .route("/v1/operations", get(v1::operations_list::handle))
        .route("/v1/operations/{operation_id}", get(v1::operations_get::handle))
        .route(
            "/v1/operations/{operation_id}/cancel",
            post(v1::operations_cancel::handle),
        )
        .route(
            "/v1/operations/{operation_id}/retry",
            post(v1::operations_retry::handle),
        );
    // The last layer is the outermost: counting, then authentication, then the limit, then the route.
    closed(routes, api.clone())
        .layer(from_fn_with_state(api.clone(), access::limit))
        .layer(from_fn_with_state(api.clone(), access::authenticate))
        .layer(from_fn_with_state(api, observe::observe))
}

/// Routes of the roles `scheduler`, `worker` and `background`. They have nothing that could be limited.
pub fn health_only(api: Api) -> Router {
    closed(observed(), api.clone()).layer(from_fn_with_state(api, access::authenticate))
}

fn observed() -> Router<Api> {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::scrape))
}

fn closed(routes: Router<Api>, api: Api) -> Router {
    routes
        .fallback(|| async { Problem::not_found() })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .with_state(api)
}
