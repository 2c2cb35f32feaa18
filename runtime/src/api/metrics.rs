//! `GET /metrics`: the process's metrics as Prometheus text. The registry is handed in; nothing is counted here.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header;
use prometheus::{Encoder as _, TEXT_FORMAT, TextEncoder};

use super::problem::Problem;
use super::state::Api;

/// Answers the registry's state; 404 when metrics are off.
pub(crate) async fn scrape(State(api): State<Api>) -> Result<Response, Problem> {
    let registry = api.registry().ok_or_else(Problem::not_found)?;
    // A scrape before the runtime is bound shows what there is.
    if let Ok(app) = api.app() {
        app.refresh_gauges().await;
    }
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&registry.gather(), &mut text)
        .map_err(|_| Problem::internal_error())?;
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response())
}
