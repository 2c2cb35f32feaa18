//! `GET /metrics`: the process's metrics as Prometheus text. Nothing is counted here.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header;
use prometheus::TEXT_FORMAT;

use super::problem::Problem;
use super::state::Api;

/// Answers the metrics; 404 when metrics are off.
pub(crate) async fn scrape(State(api): State<Api>) -> Result<Response, Problem> {
    let metrics = api.metrics().ok_or_else(Problem::not_found)?;
    // A scrape before the runtime is bound shows what there is.
    if let Ok(app) = api.app() {
        app.refresh_gauges().await;
    }
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], metrics.render()).into_response())
}
