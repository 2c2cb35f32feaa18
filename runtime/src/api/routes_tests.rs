//! Every route over a real server: what it asks the application, what it answers, and how it refuses.

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
    OperationStatus, OperationView, RevisionView, SearchMode, SearchView, Waited,
};
use super::testing::{TestServer, patient, post};

const SCOPE: &str = "s";

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

fn entry() -> EntryView {
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

fn citation() -> Value {
    json!({
        "memory_ref": {"family": "memory", "artifact_id": "memory", "revision": 1},
        "entry_id": "mem_ent_1",
        "entry_version_id": "mem_ver_1"
    })
}

fn entry_json() -> Value {
    json!({
        "citation": citation(), "version": 1, "kind": "fact", "text": "Tea is served at four.", "state": "active",
        "source_refs": [{"name": "content", "source_id": "a"}], "artifact_refs": []
    })
}

/// Every POST route with a body that it accepts.
fn posts() -> Vec<(String, Value)> {
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

async fn started() -> TestServer {
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
async fn a_flush_is_decided_in_the_order_of_the_contract() {
    let server = started().await;
    let id = operation(1, OperationStatus::Queued).id;
    let flush = |prefer: &'static str| {
        let request = post("/v1/memory/flush", prefer, &json!({"scope_id": SCOPE}).to_string());
        let server = &server;
        async move { server.send(&request).await }
    };
    let ended = |status| Some(Waited::Ended(operation(1, status)));

    server.app.script().flush = Some(FlushStart::Blocked { id });
    let reply = flush("").await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "operation_blocked"));
    assert_eq!(reply.json()["error"]["details"], json!({"operation_id": id}));
    assert!(
        !server.calls().iter().any(|call| call.starts_with("wait")),
        "nobody waits"
    );

    server.app.script().flush = Some(FlushStart::Admitted { id });
    server.app.script().waited = ended(OperationStatus::Succeeded);
    let reply = flush("").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json(),
        json!({"status": "processed", "previous_cursor": 0, "current_cursor": 3, "high_watermark": 3,
               "processed_source_count": 3, "memory": citation()["memory_ref"]})
    );
    for (status, code) in [
        (OperationStatus::Failed, "operation_failed"),
        (OperationStatus::Cancelled, "operation_cancelled"),
    ] {
        server.app.script().waited = ended(status);
        let reply = flush("").await;
        assert_eq!((reply.status, reply.code().as_str()), (409, code));
        assert_eq!(reply.json()["error"]["details"], json!({"operation_id": id}));
    }
    let head = operation(9, OperationStatus::Failed).id;
    server.app.script().waited = Some(Waited::HeadFailed { head });
    let reply = flush("").await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "operation_blocked"));
    assert_eq!(reply.json()["error"]["details"], json!({"operation_id": head}));

    server.app.script().waited = Some(Waited::Pending(operation(1, OperationStatus::RetryWait)));
    for (prefer, budget) in [
        ("", "wait 8s"),
        ("prefer: respond-async, wait=20\r\n", "wait 0s"),
        ("prefer: wait=20\r\n", "wait 20s"),
        ("prefer: wait=99\r\n", "wait 30s"),
    ] {
        let reply = flush(prefer).await;
        reply.assert_proper();
        let url = format!("/v1/operations/{id}");
        assert_eq!(reply.status, 202);
        assert_eq!(
            reply.json(),
            json!({"operation_id": id, "status": "retry_wait", "status_url": url})
        );
        assert_eq!(
            (reply.header("location"), reply.header("retry-after")),
            (Some(url.as_str()), Some("2"))
        );
        assert_eq!(server.calls().last().map(String::as_str), Some(budget), "{prefer}");
    }
}

#[tokio::test]
async fn a_succeeded_run_that_moved_nothing_is_idle() {
    let server = started().await;
    let mut succeeded = operation(1, OperationStatus::Succeeded);
    if let Some(result) = &mut succeeded.result {
        result.previous_cursor = result.current_cursor;
        result.processed_source_count = 0;
        result.product = OperationProduct::Memory(None);
    }
    {
        let mut script = server.app.script();
        script.flush = Some(FlushStart::Admitted { id: succeeded.id });
        script.waited = Some(Waited::Ended(succeeded));
    }
    let reply = server.post("/v1/memory/flush", &json!({"scope_id": SCOPE})).await;
    assert_eq!((reply.status, reply.json()["status"].clone()), (200, json!("idle")));
    assert_eq!(reply.json()["memory"], json!(null));
}

#[tokio::test]
async fn results_and_errors_of_operations_are_tagged_and_bounded() {
    let server = started().await;
    let mut incubation = operation(2, OperationStatus::Succeeded);
    incubation.kind = OperationKind::ExperienceIncubation;
    if let Some(result) = &mut incubation.result {
        result.product = OperationProduct::ExperienceCandidates(4);
    }
    let failed = operation(3, OperationStatus::Failed);
    server.app.script().operations = vec![
        operation(1, OperationStatus::Succeeded),
        incubation.clone(),
        failed.clone(),
    ];
    let cursors = json!({"previous_cursor": 0, "high_watermark": 3, "current_cursor": 3, "processed_source_count": 3});
    let with = |mut object: Value, name: &str, value: Value| {
        object[name] = value;
        object
    };
    let flushed = with(
        with(cursors.clone(), "type", json!("memory_flush")),
        "memory",
        citation()["memory_ref"].clone(),
    );
    let incubated = with(
        with(cursors, "type", json!("experience_incubation")),
        "candidate_count",
        json!(4),
    );
    let get = async |id: WorkId| server.get(&format!("/v1/operations/{id}")).await.json();
    assert_eq!(get(operation(1, OperationStatus::Queued).id).await["result"], flushed);
    assert_eq!(get(incubation.id).await["result"], incubated);
    let failed = get(failed.id).await;
    assert_eq!(
        failed["error"],
        json!({"category": "provider", "code": "invalid_output"})
    );
    assert_eq!(failed["result"], json!(null));
    assert_eq!(failed["completed_at"], failed["created_at"]);
}

#[tokio::test]
async fn a_list_is_walked_page_by_page_without_gap_or_repetition() {
    let server = started().await;
    server.app.script().operations = (1..=6).map(|n| operation(n, OperationStatus::Queued)).collect();
    let mut seen = Vec::new();
    let mut target = "/v1/operations?limit=2".to_owned();
    loop {
        let reply = server.get(&target).await;
        reply.assert_proper();
        let body = reply.json();
        let items = body["items"].as_array().expect("items").clone();
        seen.extend(items.iter().map(|item| item["operation_id"].clone()));
        match body["next_cursor"].as_str() {
            Some(cursor) => target = format!("/v1/operations?limit=2&cursor={cursor}"),
            None => break,
        }
        assert_eq!(items.len(), 2, "a cursor follows a full page only");
    }
    let wanted: Vec<_> = (1..=6)
        .rev()
        .map(|n| json!(operation(n, OperationStatus::Queued).id))
        .collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn strange_queries_are_refused_with_their_place_and_the_application_is_not_asked() {
    let server = started().await;
    for (query, kind, name) in [
        ("limit=0", "greater_than_equal", "limit"),
        ("limit=-1", "greater_than_equal", "limit"),
        ("limit=1000000000", "less_than_equal", "limit"),
        ("limit=ten", "int_parsing", "limit"),
        ("limit=1&limit=2", "value_error", "limit"),
        ("kind=maintenance", "enum", "kind"),
        ("status=Queued", "enum", "status"),
        ("scope_id=", "string_pattern_mismatch", "scope_id"),
        ("scope_id=%00", "value_error", "scope_id"),
        ("scope_id=a%E2%80%AEb", "value_error", "scope_id"),
        ("scope_id=%ff", "value_error", "scope_id"),
        ("cursor=", "value_error", "cursor"),
        ("cursor=Zm9yZ2Vk", "value_error", "cursor"),
        ("cursor=W10", "value_error", "cursor"),
    ] {
        let reply = server.get(&format!("/v1/operations?{query}")).await;
        reply.assert_proper();
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (422, "invalid_request"),
            "{query}"
        );
        let faults = &reply.json()["error"]["details"]["errors"];
        assert_eq!(faults[0]["type"], kind, "{query}");
        assert_eq!(faults[0]["loc"], json!(["query", name]), "{query}");
    }
    let long = format!("/v1/operations?scope_id={}", "x".repeat(257));
    assert_eq!(server.get(&long).await.status, 422);
    assert_eq!(server.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn operation_ids_in_paths_are_checked() {
    let server = started().await;
    for id in [
        "x",
        "0198F0C2-8B1E-7C3A-9D52-3F7F4F0A1B2C",
        "0198f0c28b1e7c3a9d523f7f4f0a1b2c",
        "%ff",
        "%00",
        "a%2Fb",
    ] {
        for reply in [
            server.get(&format!("/v1/operations/{id}")).await,
            server
                .post(&format!("/v1/operations/{id}/cancel"), &json!({"expected_version": 1}))
                .await,
        ] {
            reply.assert_proper();
            assert_eq!(reply.status, 422, "{id}");
            assert_eq!(
                reply.json()["error"]["details"]["errors"][0]["loc"],
                json!(["path", "operation_id"])
            );
        }
    }
    let unknown = server.get("/v1/operations/0198f0c2-8b1e-7c3a-9d52-ffffffffffff").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "operation_not_found"));
}

#[tokio::test]
async fn an_expected_version_is_a_positive_integer_and_nothing_else() {
    let server = started().await;
    let id = operation(1, OperationStatus::Queued).id;
    for act in ["cancel", "retry"] {
        let target = format!("/v1/operations/{id}/{act}");
        for (text, kind) in [
            (r#"{"expected_version":-1}"#, "greater_than_equal"),
            (r#"{"expected_version":0}"#, "greater_than_equal"),
            (r#"{"expected_version":9007199254740992}"#, "less_than_equal"),
            (r#"{"expected_version":9223372036854775808}"#, "less_than_equal"),
            (r#"{"expected_version":"1"}"#, "int_type"),
            (r#"{"expected_version":1.0}"#, "int_type"),
            (r#"{"expected_version":1e0}"#, "int_type"),
            (r#"{"expected_version":true}"#, "int_type"),
            (r#"{"expected_version":null}"#, "int_type"),
            (r#"{"expected_version":1,"expected_version":1}"#, "json_invalid"),
            (r#"{"expected_version":1,"force":true}"#, "extra_forbidden"),
            ("{}", "missing"),
            ("[]", "object_type"),
            ("", "missing"),
        ] {
            let reply = server.send(&post(&target, "", text)).await;
            reply.assert_proper();
            assert_eq!(reply.status, 422, "{text}");
            assert_eq!(reply.json()["error"]["details"]["errors"][0]["type"], kind, "{text}");
        }
        assert_eq!(server.calls(), Vec::<String>::new(), "no work done");
        server
            .post(&target, &json!({"expected_version": 9_007_199_254_740_991_u64}))
            .await;
        assert_eq!(server.calls(), [format!("{act} {id} 9007199254740991")]);
        server.app.script().calls.clear();
    }
}

#[tokio::test]
async fn every_post_route_is_closed_strict_and_silent_about_values() {
    let server = started().await;
    for (target, good) in posts() {
        for (body, fields, kind) in [
            ("secret-value".to_owned(), "", "json_invalid"),
            (
                format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
                "",
                "json_invalid",
            ),
            (String::from("{\"scope_id\":\"\\ud800secret\"}"), "", "json_invalid"),
            (String::from("{\"scope_id\":NaN}"), "", "json_invalid"),
            (String::from("\"secret-value\""), "", "object_type"),
        ] {
            let reply = server.send(&post(&target, fields, &body)).await;
            reply.assert_proper();
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (422, "invalid_request"),
                "{target}"
            );
            assert_eq!(reply.json()["error"]["details"]["errors"][0]["type"], kind, "{target}");
            assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{target}");
        }
        let mut open = good.clone();
        open["surplus"] = json!("secret-value");
        let reply = server.post(&target, &open).await;
        assert_eq!(
            reply.json()["error"]["details"]["errors"][0]["loc"],
            json!(["body", "surplus"]),
            "{target}"
        );
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{target}");
        for name in good.as_object().expect("an object").keys() {
            let mut wrong = good.clone();
            wrong[name] = json!(["secret-value"]);
            let reply = server.post(&target, &wrong).await;
            reply.assert_proper();
            assert_eq!(reply.status, 422, "{target} {name}");
            let faults = reply.json()["error"]["details"]["errors"].clone();
            assert_eq!(faults[0]["loc"], json!(["body", name]), "{target}");
            assert!(
                !String::from_utf8_lossy(&reply.body).contains("secret"),
                "{target} {name}"
            );
        }
        let media =
            format!("POST {target} HTTP/1.1\r\nhost: t\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{{}}");
        let reply = server.send(&media).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (422, "invalid_request"),
            "{target}"
        );
    }
    assert_eq!(server.calls(), Vec::<String>::new(), "no work done");
}

async fn assert_limits(target: &str, cases: Vec<(Value, Option<&str>)>) {
    let server = started().await;
    for (body, place) in cases {
        let reply = server.post(target, &body).await;
        reply.assert_proper();
        let Some(place) = place else {
            assert!(reply.status < 300, "{target} {}", reply.status);
            continue;
        };
        assert_eq!(reply.status, 422, "{target} {place}");
        let loc = reply.json()["error"]["details"]["errors"][0]["loc"].clone();
        let names: Vec<_> = loc
            .as_array()
            .expect("a path")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(names.join("."), format!("body.{place}"));
    }
}

fn wide(count: usize) -> String {
    "記".repeat(count)
}

#[tokio::test]
async fn captures_are_accepted_at_their_limits_and_refused_one_past_them() {
    let capture =
        |scope: &str, source: &str, content: &str| json!({"scope_id": scope, "source_id": source, "content": content});
    let cases = vec![
        (capture(&wide(256), "a", "c"), None),
        (capture(&wide(257), "a", "c"), Some("scope_id")),
        (capture("s\u{0}", "a", "c"), Some("scope_id")),
        (capture("s", &wide(256), "c"), None),
        (capture("s", &wide(257), "c"), Some("source_id")),
        (capture("s", "a\u{202e}", "c"), Some("source_id")),
        (capture("s", "a", &wide(200_000)), None),
        (capture("s", "a", &wide(200_001)), Some("content")),
        (capture("s", "a", ""), Some("content")),
        (capture("s", "a", "line\nline\t\u{202e}"), None),
    ];
    assert_limits("/v1/sources/content", cases).await;
}

#[tokio::test]
async fn entries_are_accepted_at_their_limits_and_refused_one_past_them() {
    let remember =
        |kind: &str, text: &str, reason: &str| json!({"scope_id": SCOPE, "kind": kind, "text": text, "reason": reason});
    let cases = vec![
        (remember(&wide(128), "t", ""), None),
        (remember(&wide(129), "t", ""), Some("kind")),
        (remember("fact", &"x".repeat(8192), ""), None),
        (remember("fact", &"x".repeat(8193), ""), Some("text")),
        (remember("fact", " \n", ""), Some("text")),
        (remember("fact", "t", &wide(512)), None),
        (remember("fact", "t", &wide(513)), Some("reason")),
    ];
    assert_limits("/v1/memory/remember", cases).await;

    let get = |revision: i64| {
        let mut citation = citation();
        citation["memory_ref"]["revision"] = json!(revision);
        json!({"scope_id": SCOPE, "citation": citation})
    };
    let cases = vec![
        (get(1), None),
        (get(0), Some("citation.memory_ref.revision")),
        (get(1 << 32), Some("citation.memory_ref.revision")),
    ];
    assert_limits("/v1/memory/entries/get", cases).await;
}

#[tokio::test]
async fn searches_are_accepted_at_their_limits_and_refused_one_past_them() {
    let search = |query: &str, limit: i64| json!({"scope_id": SCOPE, "query": query, "limit": limit});
    let cases = vec![
        (search(&wide(8192), 50), None),
        (search(&wide(8193), 50), Some("query")),
        (search("", 50), Some("query")),
        (search("q", 1), None),
        (search("q", 0), Some("limit")),
        (search("q", -1), Some("limit")),
        (search("q", 51), Some("limit")),
        (search("q", 1_000_000_000), Some("limit")),
    ];
    assert_limits("/v1/memory/search", cases).await;
}

#[tokio::test]
async fn scopes_are_byte_exact_on_their_way_in() {
    let server = started().await;
    for scope in ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"] {
        server
            .post("/v1/memory/entries/list", &json!({"scope_id": scope}))
            .await;
    }
    let wanted = ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"].map(|scope| format!("entries {scope} false"));
    assert_eq!(server.calls(), wanted);
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
