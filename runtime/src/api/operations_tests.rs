//! Flushes and operations over a real server: what becomes of them is told by status, code and details.

use powercontext_core::ids::WorkId;
use powercontext_core::operation::OperationKind;
use serde_json::{Value, json};

use super::app::{FlushStart, OperationProduct, OperationStatus, Waited};
use super::routes_tests::{SCOPE, citation, operation, started};
use super::testing::post;

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
