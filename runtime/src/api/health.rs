//! Liveness and readiness. Liveness says that the process answers and never looks at the database: a restart does not
//! mend a database. Readiness says whether to send traffic here.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::json;

use super::answers::ReadinessBody;
use super::app::{Check, CheckState};
use super::state::Api;
use crate::rt;

/// Longest wait for the checks. Each dependency has a shorter limit of its own; this one is for the checks themselves.
const CHECKS_MAX: Duration = Duration::from_secs(4);

/// `GET /health/live`.
pub(crate) async fn live() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// `GET /health/ready`: 200 when ready or degraded, else 503 with the same body.
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let runtime = |state| {
        let blocking = true;
        vec![Check {
            name: "runtime",
            state,
            blocking,
        }]
    };
    let checks = match api.app() {
        _ if api.draining().is_cancelled() => runtime(CheckState::NotReady),
        Err(_unbound) => runtime(CheckState::NotReady),
        // The checks run on a task of their own: one that hangs is left behind and not dropped in mid-statement.
        Ok(app) => match rt::within(CHECKS_MAX, rt::spawn(async move { app.readiness().await })).await {
            Ok(Ok(checks)) => checks,
            Ok(Err(_)) | Err(_) => runtime(CheckState::Unavailable),
        },
    };
    let body = aggregate(&checks);
    let status = if body.status == "not_ready" {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    (status, Json(body)).into_response()
}

/// Any blocking check that is not ready makes the whole not ready; any other one degrades it.
fn aggregate(checks: &[Check]) -> ReadinessBody {
    let failing = |blocking| {
        checks
            .iter()
            .any(|check| check.blocking == blocking && check.state != CheckState::Ready)
    };
    let status = if failing(true) {
        "not_ready"
    } else if failing(false) {
        "degraded"
    } else {
        "ready"
    };
    ReadinessBody {
        status,
        checks: checks.iter().map(|check| (check.name, check.state.wire())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocking_check_decides_before_a_degrading_one() {
        let check = |name, state, blocking| Check { name, state, blocking };
        let model = |state| check("inference.generation", state, false);
        let database = |state| check("database", state, true);
        for (checks, status) in [
            (vec![], "ready"),
            (vec![database(CheckState::Ready), model(CheckState::Ready)], "ready"),
            (
                vec![database(CheckState::Ready), model(CheckState::Timeout)],
                "degraded",
            ),
            (
                vec![database(CheckState::Timeout), model(CheckState::Ready)],
                "not_ready",
            ),
            (
                vec![database(CheckState::Unavailable), model(CheckState::Unavailable)],
                "not_ready",
            ),
            (vec![database(CheckState::Misconfigured)], "not_ready"),
        ] {
            assert_eq!(aggregate(&checks).status, status, "{checks:?}");
        }
    }
}
