//! Every route over a real server: what it asks the application, what it answers, and what is counted.

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{EntryId, EntryVersionId, ScopeId, SourceId, SourceType, WorkId};
use powercontext_core::memory::citation::memory_ref;
use powercontext_core::memory::{ChangeOp, EntryChange, EntryContent, EntryKind, EntryText, EntryVersion};
use powercontext_core::operation::OperationKind;
use powercontext_core::refs::{Position, Revision, SourceRef};
use powercontext_core::time::DbTime;
use serde_json::{Value, json};

use super::app::{
    AppError, ChangesView, Check, CheckState, EntryView, FlushStart, HitView, OperationProduct, OperationResult,
    OperationStatus, OperationView, RevisionView, SearchMode, SearchView,
};
use super::testing::{TestServer, patient};

pub(super) const SCOPE: &str = "s";

/// The n-th operation; later ones were created later.
pub(super) fn operation(n: u32, status: OperationStatus) -> OperationView {
    let created_at = DbTime::from_micros(1_764_000_000_000_000 + i64::from(n));
    OperationView {
        id: WorkId::parse(&format!("0198f0c2-8b1e-7c3a-9d52-{n:012x}")).expect("an id"),
        kind: OperationKind::MemoryFlush,
        scope_id: ScopeId::parse(SCOPE).expect("a scope"),
        status,
        attempt_count: 1,
        state_version: 2,
        created_at,
        updated_at: created_at,
        completed_at: status.is_terminal().then_some(created_at),
        result: (status == OperationStatus::Succeeded).then(|| OperationResult {
            previous_cursor: Position::START,
            high_watermark: Position::new(3),
            current_cursor: Position::new(3),
            processed_source_count: 3,
            product: OperationProduct::Memory(Some(memory_ref(Revision::FIRST))),
        }),
        error: (status == OperationStatus::Failed).then_some(FailCode::ProviderInvalidOutput),
    }
}

pub(super) fn entry() -> EntryView {
    let source = SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse("a").expect("an id"),
    };
    let kind = EntryKind::parse("fact").expect("a kind");
    let text = EntryText::parse("Tea is served at four.").expect("a text");
    let content = EntryContent::new(kind, text, vec![source], vec![]).expect("few references");
    EntryView {
        revision: Revision::FIRST,
        entry: EntryVersion::first(
            EntryId::parse("mem_ent_1").expect("an id"),
            EntryVersionId::parse("mem_ver_1").expect("an id"),
            content,
        ),
    }
}

pub(super) fn citation() -> Value {
    json!({
        "memory_ref": {"family": "memory", "artifact_id": "memory", "revision": 1},
        "entry_id": "mem_ent_1",
        "entry_version_id": "mem_ver_1"
    })
}

pub(super) fn entry_json() -> Value {
    json!({
        "citation": citation(), "version": 1, "kind": "fact", "text": "Tea is served at four.", "state": "active",
        "source_refs": [{"name": "content", "source_id": "a"}], "artifact_refs": []
    })
}

/// Every POST route with a body that it accepts.
pub(super) fn posts() -> Vec<(String, Value)> {
    let id = operation(1, OperationStatus::Queued).id;
    [
        (
            "/v1/sources/content",
            json!({"scope_id": SCOPE, "source_id": "a", "content": "c", "metadata": {"k": 1}}),
        ),
        ("/v1/memory/flush", json!({"scope_id": SCOPE})),
        (
            "/v1/memory/remember",
            json!({"scope_id": SCOPE, "kind": "fact", "text": "t"}),
        ),
        ("/v1/memory/search", json!({"scope_id": SCOPE, "query": "q"})),
        ("/v1/memory/entries/list", json!({"scope_id": SCOPE})),
        (
            "/v1/memory/entries/get",
            json!({"scope_id": SCOPE, "citation": citation()}),
        ),
        (
            "/v1/memory/entries/revise",
            json!({"scope_id": SCOPE, "citation": citation(), "kind": "fact", "text": "t"}),
        ),
        (
            "/v1/memory/entries/retire",
            json!({"scope_id": SCOPE, "citation": citation()}),
        ),
        ("/v1/memory/changes", json!({"scope_id": SCOPE})),
        (&format!("/v1/operations/{id}/cancel"), json!({"expected_version": 1})),
        (&format!("/v1/operations/{id}/retry"), json!({"expected_version": 1})),
    ]
    .map(|(target, body)| (target.to_owned(), body))
    .to_vec()
}

pub(super) async fn started() -> TestServer {
    let server = TestServer::start(patient()).await;
    {
        let mut script = server.app.script();
        script.operations = vec![operation(1, OperationStatus::Queued)];
        script.entries = vec![entry()];
        script.flush = Some(FlushStart::Idle {
            cursor: Position::new(3),
            memory: None,
        });
    }
    server
}

#[tokio::test]
async fn every_route_answers_its_declared_status_with_a_closed_body() {
    let server = started().await;
    let operation_json = json!({
        "operation_id": operation(1, OperationStatus::Queued).id, "kind": "memory_flush", "scope_id": SCOPE,
        "status": "queued", "attempt_count": 1, "state_version": 2, "created_at": "2025-11-24T16:00:00.000001Z",
        "updated_at": "2025-11-24T16:00:00.000001Z", "completed_at": null, "result": null, "error": null
    });
    let mutation = json!({"memory": citation()["memory_ref"], "entry": entry_json()});
    let answers = [
        (
            202,
            json!({"status": "accepted", "source": {"name": "content", "source_id": "a"}, "position": 1}),
        ),
        (
            200,
            json!({"status": "idle", "previous_cursor": 3, "current_cursor": 3, "high_watermark": 3,
                     "processed_source_count": 0, "memory": null}),
        ),
        (200, mutation.clone()),
        (200, json!({"memory": null, "mode": null, "hits": []})),
        (200, json!({"memory": null, "entries": [entry_json()]})),
        (200, entry_json()),
        (200, mutation.clone()),
        (200, mutation),
        (200, json!({"memory": null, "revisions": []})),
        (200, operation_json.clone()),
        (200, operation_json.clone()),
    ];
    for ((target, body), (status, answer)) in posts().into_iter().zip(answers) {
        let reply = server.post(&target, &body).await;
        reply.assert_proper();
        assert_eq!((reply.status, reply.json()), (status, answer), "{target}");
    }
    let target = format!(
        "/v1/operations/{}?operation_id=x&%ff",
        operation(1, OperationStatus::Queued).id
    );
    assert_eq!(server.get(&target).await.json(), operation_json);
    let capabilities = server.get("/v1/capabilities").await;
    capabilities.assert_proper();
    assert_eq!(
        capabilities.json(),
        json!({
            "source_types": ["content"], "artifact_families": ["memory"], "memory_extraction": true,
            "experience_generation": false, "managed_skill_generation": false, "external_skill_registry": false,
            "handoff_generation": false, "search_modes": ["auto", "fts"],
            "context_versions": ["powercontext.prepared-context.v1"]
        })
    );
}

#[tokio::test]
async fn hits_and_changes_are_shown_whole() {
    let server = started().await;
    {
        let mut script = server.app.script();
        script.hits = Some(SearchView {
            memory: Some(memory_ref(Revision::FIRST)),
            mode: Some(SearchMode::Fts),
            hits: vec![HitView {
                citation: serde_json::from_value(citation()).expect("a citation"),
                text: "Tea".to_owned(),
                score: 1.0 / 61.0,
                matched_by: vec![SearchMode::Fts],
            }],
        });
        let change = EntryChange {
            op: ChangeOp::Add,
            entry_id: EntryId::parse("mem_ent_1").expect("an id"),
            from_entry_version_id: None,
            to_entry_version_id: Some(EntryVersionId::parse("mem_ver_1").expect("an id")),
            reason: None,
        };
        script.changes = Some(ChangesView {
            memory: Some(memory_ref(Revision::FIRST)),
            revisions: vec![RevisionView {
                memory_ref: memory_ref(Revision::FIRST),
                changes: vec![change],
            }],
        });
    }
    let memory = &citation()["memory_ref"];
    assert_eq!(
        server
            .post(
                "/v1/memory/search",
                &json!({"scope_id": SCOPE, "query": "tea", "limit": 50})
            )
            .await
            .json(),
        json!({"memory": memory, "mode": "fts", "hits": [
            {"citation": citation(), "text": "Tea", "score": 1.0 / 61.0, "matched_by": ["fts"]}]})
    );
    assert_eq!(
        server
            .post("/v1/memory/changes", &json!({"scope_id": SCOPE, "since_revision": 0}))
            .await
            .json(),
        json!({"memory": memory, "revisions": [{"memory_ref": memory, "changes": [
            {"op": "add", "entry_id": "mem_ent_1", "from_entry_version_id": null,
             "to_entry_version_id": "mem_ver_1", "reason": null}]}]})
    );
}

#[tokio::test]
async fn every_application_error_has_its_status_code_and_details() {
    let server = started().await;
    let id = operation(1, OperationStatus::Queued).id;
    let conflict = AppError::OperationConflict {
        id,
        status: OperationStatus::Running,
        actual_version: 7,
    };
    let invalid = AppError::Invalid {
        field: "text",
        reason: "the Memory is full",
    };
    let invalid_details =
        json!({"errors": [{"type": "value_error", "loc": ["body", "text"], "msg": "the Memory is full"}]});
    for (error, status, code, details) in [
        (AppError::OperationNotFound, 404, "operation_not_found", json!(null)),
        (AppError::ArtifactNotFound, 404, "artifact_not_found", json!(null)),
        (AppError::MemoryNotFound, 404, "memory_not_found", json!(null)),
        (AppError::SourceConflict, 409, "source_conflict", json!(null)),
        (AppError::RevisionConflict, 409, "revision_conflict", json!(null)),
        (AppError::EntryInactive, 409, "memory_entry_inactive", json!(null)),
        (
            conflict,
            409,
            "operation_conflict",
            json!({"operation_id": id, "status": "running", "actual_version": 7}),
        ),
        (
            AppError::CapabilityNotSupported("extract"),
            422,
            "capability_not_supported",
            json!({"capability": "extract"}),
        ),
        (invalid, 422, "invalid_request", invalid_details),
        (AppError::Unavailable, 503, "runtime_not_ready", json!(null)),
        (
            AppError::Busy { retry_after_seconds: 3 },
            503,
            "runtime_not_ready",
            json!(null),
        ),
        (AppError::Internal, 500, "internal_error", json!(null)),
    ] {
        server.app.script().fails_with = Some(error.clone());
        for (target, body) in posts() {
            let reply = server.post(&target, &body).await;
            reply.assert_proper();
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{target}");
            assert_eq!(reply.json()["error"]["details"], details, "{target}");
            assert_eq!(reply.header("retry-after").is_some(), status == 503);
        }
        if matches!(error, AppError::Busy { .. }) {
            assert_eq!(server.get("/v1/operations").await.header("retry-after"), Some("3"));
        }
    }
}

#[tokio::test]
async fn an_unbound_server_is_not_ready_but_alive() {
    let server = started().await;
    server.api.unbind();
    for (target, body) in posts() {
        let reply = server.post(&target, &body).await;
        assert_eq!(
            (reply.status, reply.code()),
            (503, "runtime_not_ready".to_owned()),
            "{target}"
        );
    }
    let ready = server.get("/health/ready").await;
    assert_eq!(
        (ready.status, ready.json()),
        (503, json!({"status": "not_ready", "checks": {"runtime": "not_ready"}}))
    );
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn a_model_that_does_not_answer_degrades_and_a_database_that_does_not_stops() {
    let server = started().await;
    let ready = server.get("/health/ready").await;
    assert_eq!(
        (ready.status, ready.json()),
        (
            200,
            json!({"status": "ready", "checks": {"runtime": "ready", "database": "ready"}})
        )
    );
    let check = |name, state, blocking| Check { name, state, blocking };
    server.app.script().checks = vec![check("inference.generation", CheckState::Timeout, false)];
    let ready = server.get("/health/ready").await;
    assert_eq!((ready.status, ready.json()["status"].clone()), (200, json!("degraded")));
    assert_eq!(ready.json()["checks"]["inference.generation"], "timeout");
    server.app.script().checks = vec![check("database", CheckState::Unavailable, true)];
    assert_eq!(server.get("/health/ready").await.status, 503);
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let server = started().await;
    let reply = server.get("/metrics").await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("text/plain; version=0.0.4"))
    );
    assert!(String::from_utf8_lossy(&reply.body).contains("powercontext_test_total 0"));
}

#[tokio::test]
async fn roles_without_an_api_expose_health_and_metrics_only() {
    use super::prefer::WaitLimits;
    use super::state::Api;
    use tower::ServiceExt as _;

    let api = Api::new(
        super::access::Guard::open(),
        WaitLimits::default(),
        None,
        tokio_util::sync::CancellationToken::new(),
    );
    let status = async |target: &str| {
        let request = http::Request::get(target)
            .body(axum::body::Body::empty())
            .expect("a request");
        let answer = super::router::health_only(api.clone()).oneshot(request).await;
        answer.expect("infallible").status().as_u16()
    };
    assert_eq!(status("/health/live").await, 200);
    assert_eq!(status("/health/ready").await, 503);
    assert_eq!(status("/metrics").await, 404, "metrics are off");
    for target in ["/v1/operations", "/v1/capabilities", "/v1/memory/flush", "/", "/mcp"] {
        assert_eq!(status(target).await, 404, "{target}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_operation_and_outcome() {
    let server = TestServer::start(patient()).await;
    server.get("/health/live").await;
    server.get("/v1/capabilities").await;
    server.get("/v1/nowhere").await;
    let text = String::from_utf8_lossy(&server.get("/metrics").await.body).into_owned();
    for (operation, outcome, count) in [
        ("get_capabilities", "success", 1),
        ("unmatched", "failure", 1),
        ("get_capabilities", "failure", 0),
    ] {
        let series = format!(
            "powercontext_server_transport_requests_total{{operation=\"{operation}\",outcome=\"{outcome}\",transport=\"http\"}} {count}"
        );
        assert!(text.contains(&series), "{series}");
    }
    assert!(!text.contains("/v1/"), "no path is a label");
}
