//! `GET /v1/capabilities`: what this deployment can do.

use axum::Json;
use axum::extract::State;

use super::super::answers::CapabilitiesBody;
use super::super::problem::Problem;
use super::super::state::Api;

/// Answers 200.
pub(crate) async fn handle(State(api): State<Api>) -> Result<Json<CapabilitiesBody>, Problem> {
    Ok(Json(api.app()?.capabilities().await?.into()))
}
