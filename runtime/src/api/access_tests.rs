//! Strangers, holders of the token and those who ask too often, over a real server.

use std::num::NonZeroU32;

use powercontext_core::rate::Quota;
use secrecy::SecretString;
use serde_json::json;

use super::access::Guard;
use super::app::{AppError, FlushStart, OperationStatus};
use super::routes_tests::operation;
use super::testing::{DEADLINE, Reply, TestServer, patient, post};
use crate::rt;

const TOKEN: &str = "correct-horse";
const AUTH: &str = "authorization: Bearer correct-horse\r\n";
const FLUSH: &str = r#"{"scope_id":"s"}"#;

fn token() -> SecretString {
    SecretString::from(TOKEN)
}

fn quota(requests: u32) -> Quota {
    Quota::new(
        NonZeroU32::new(requests).expect("some"),
        NonZeroU32::new(60).expect("some"),
    )
}

async fn closed() -> TestServer {
    TestServer::guarded(patient(), Guard::new(Some(&token()), None)).await
}

async fn limited(requests: u32) -> TestServer {
    TestServer::guarded(patient(), Guard::new(Some(&token()), Some(quota(requests)))).await
}

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: t\r\n{fields}\r\n")
}

fn assert_unauthorized(reply: &Reply, what: &str) {
    assert_eq!((reply.status, reply.code()), (401, "unauthorized".to_owned()), "{what}");
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{what}");
    assert!(reply.json()["error"]["details"].is_null(), "{what}");
    reply.assert_proper();
}

fn assert_limited(reply: &Reply) {
    assert_eq!((reply.status, reply.code()), (429, "rate_limited".to_owned()));
    assert_eq!(reply.header("retry-after"), Some("60"));
    assert!(reply.json()["error"]["details"].is_null());
    reply.assert_proper();
}

#[tokio::test]
async fn a_stranger_sees_the_health_routes_and_nothing_else() {
    let server = closed().await;
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    for path in [
        "/metrics",
        "/v1/capabilities",
        "/v1/operations",
        "/openapi.json",
        "/mcp/",
        "/no/such/path",
        "/health/live/",
        "//health/live",
        "/health/l%69ve",
    ] {
        assert_unauthorized(&server.get(path).await, path);
    }
    for request in [
        post("/v1/memory/flush", "", FLUSH),
        post("/v1/memory/flush", "", "{not json"),
        post("/v1/capabilities", "", "{}"),
        post("/metrics", "", ""),
    ] {
        assert_unauthorized(&server.send(&request).await, &request);
    }
    assert_eq!(server.calls(), Vec::<String>::new(), "no work was done");
}

#[tokio::test]
async fn the_holder_of_the_token_gets_what_there_is() {
    let server = closed().await;
    for (path, status) in [("/metrics", 200), ("/v1/capabilities", 200), ("/no/such/path", 404)] {
        assert_eq!(server.send(&get(path, AUTH)).await.status, status, "{path}");
    }
    assert_eq!(server.send(&post("/v1/capabilities", AUTH, "{}")).await.status, 405);
    server.app.script().flush = Some(FlushStart::Idle {
        cursor: powercontext_core::refs::Position::START,
        memory: None,
    });
    for auth in [
        AUTH,
        "AUTHORIZATION: bearer correct-horse\r\n",
        "authorization:   BEARER  correct-horse  \r\n",
    ] {
        assert_eq!(
            server.send(&post("/v1/memory/flush", auth, FLUSH)).await.status,
            200,
            "{auth}"
        );
    }
    assert!(server.calls().contains(&"flush s by service".to_owned()));
}

#[tokio::test]
async fn a_credential_of_any_other_shape_is_refused_without_work() {
    let server = closed().await;
    for fields in [
        "authorization:\r\n".to_owned(),
        "authorization: Bearer\r\n".to_owned(),
        "authorization: Bearer wrong\r\n".to_owned(),
        "authorization: Bearer correct-horse2\r\n".to_owned(),
        "authorization: Basic correct-horse\r\n".to_owned(),
        "authorization: Bearer correct-horse, Bearer correct-horse\r\n".to_owned(),
        format!("{AUTH}{AUTH}"),
        format!("{AUTH}authorization: Bearer wrong\r\n"),
        format!("x-authorization: {TOKEN}\r\ncookie: {TOKEN}\r\n"),
        format!("authorization: Bearer {}\r\n", "x".repeat(12 * 1024)),
    ] {
        let request = post("/v1/memory/flush", &fields, FLUSH);
        assert_unauthorized(&server.send(&request).await, &fields);
    }
    let huge = format!("authorization: Bearer {}\r\n", "x".repeat(1024 * 1024));
    let reply = server.send(&post("/v1/memory/flush", &huge, FLUSH)).await;
    assert_eq!(reply.status, 431);
    reply.assert_proper();
    assert_eq!(server.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn without_authentication_everybody_is_the_local_principal() {
    let server = TestServer::start(patient()).await;
    server.app.script().flush = Some(FlushStart::Idle {
        cursor: powercontext_core::refs::Position::START,
        memory: None,
    });
    let request = post("/v1/memory/flush", "authorization: Bearer whatever\r\n", FLUSH);
    assert_eq!(server.send(&request).await.status, 200);
    assert_eq!(server.calls(), ["flush s by local"]);
}

#[tokio::test]
async fn a_request_over_the_quota_is_told_when_to_come_again() {
    let server = limited(3).await;
    // An unknown path and a wrong method are requests like any other.
    for (path, status) in [("/v1/capabilities", 200), ("/no/such/path", 404)] {
        assert_eq!(server.send(&get(path, AUTH)).await.status, status);
    }
    assert_eq!(server.send(&post("/v1/capabilities", AUTH, "{}")).await.status, 405);
    let calls = server.calls().len();
    for _ in 0..3 {
        assert_limited(&server.send(&get("/v1/capabilities", AUTH)).await);
    }
    assert_limited(&server.send(&get("/no/such/path", AUTH)).await);
    assert_eq!(server.calls().len(), calls, "a refused request does no work");
}

#[tokio::test]
async fn a_refused_credential_and_an_exempt_path_are_not_counted() {
    let server = limited(1).await;
    for _ in 0..5 {
        assert_unauthorized(&server.get("/v1/capabilities").await, "no credential");
        assert_eq!(server.get("/health/live").await.status, 200);
        assert_eq!(server.get("/").await.status, 404);
        assert_eq!(server.send(&get("/metrics", AUTH)).await.status, 200);
    }
    assert_eq!(server.app.script().counted, 0);
    assert_eq!(server.send(&get("/v1/capabilities", AUTH)).await.status, 200);
    assert_limited(&server.send(&get("/v1/capabilities", AUTH)).await);
    assert_eq!(server.send(&get("/metrics", AUTH)).await.status, 200);
    assert_eq!(server.get("/health/ready").await.status, 200);
}

#[tokio::test]
async fn a_limiter_that_cannot_count_refuses() {
    let server = limited(100).await;
    for (error, status) in [
        (AppError::Unavailable, 503),
        (AppError::Busy { retry_after_seconds: 1 }, 503),
        (AppError::Internal, 500),
    ] {
        server.app.script().limiter_fails_with = Some(error);
        let reply = server.send(&get("/v1/capabilities", AUTH)).await;
        assert_eq!(reply.status, status);
        reply.assert_proper();
    }
    server.api.unbind();
    for path in ["/v1/capabilities", "/no/such/path"] {
        let reply = server.send(&get(path, AUTH)).await;
        assert_eq!(
            (reply.status, reply.code()),
            (503, "runtime_not_ready".to_owned()),
            "{path}"
        );
    }
    assert_unauthorized(&server.get("/v1/capabilities").await, "unbound");
    assert_eq!(server.get("/health/live").await.status, 200);
    assert_eq!(server.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn waiting_for_an_operation_is_not_counted_and_reading_a_finished_one_is() {
    let server = limited(1).await;
    let (running, ended) = (
        operation(1, OperationStatus::Running),
        operation(2, OperationStatus::Succeeded),
    );
    let poll = |id| get(&format!("/v1/operations/{id}"), AUTH);
    let unknown = poll(operation(3, OperationStatus::Queued).id);
    server.app.script().operations = vec![running.clone(), ended.clone()];

    for _ in 0..5 {
        assert_eq!(server.send(&poll(running.id)).await.status, 200);
    }
    assert_eq!(server.app.script().counted, 0);
    assert_eq!(server.send(&poll(ended.id)).await.status, 200);
    assert_eq!(server.app.script().counted, 1);
    // The quota is gone: only who waits is served.
    assert_limited(&server.send(&poll(ended.id)).await);
    assert_limited(&server.send(&unknown).await);
    assert_limited(&server.send(&get("/v1/operations", AUTH)).await);
    let cancel = json!({"expected_version": 1}).to_string();
    let target = format!("/v1/operations/{}/cancel", running.id);
    assert_limited(&server.send(&post(&target, AUTH, &cancel)).await);
    assert_eq!(server.send(&poll(running.id)).await.status, 200);
}

#[tokio::test]
async fn reading_a_running_operation_too_often_is_counted() {
    let server = limited(1).await;
    let running = operation(1, OperationStatus::RetryWait);
    server.app.script().operations = vec![running.clone()];
    let request = get(&format!("/v1/operations/{}", running.id), AUTH);
    let mut client = server.connect().await;
    let refused = rt::within(DEADLINE, async {
        loop {
            client.write(request.as_bytes()).await;
            let reply = client.reply().await;
            if reply.status != 200 {
                return reply;
            }
        }
    });
    assert_limited(&refused.await.expect("too many within a second"));
    assert_eq!(server.app.script().counted, 1);
}

#[tokio::test]
async fn the_health_port_of_a_role_without_an_api_asks_for_the_token_and_never_limits() {
    use super::prefer::WaitLimits;
    use super::state::Api;
    use http::{Request, header};
    use tower::ServiceExt as _;

    let guard = Guard::new(Some(&token()), Some(quota(1)));
    let api = Api::new(
        guard,
        WaitLimits::default(),
        Some(crate::telemetry::metrics::Metrics::new([])),
        tokio_util::sync::CancellationToken::new(),
    );
    let router = super::router::health_only(api);
    for (path, auth, status) in [
        ("/health/live", "", 200),
        ("/metrics", "", 401),
        ("/metrics", "Bearer correct-horse", 200),
        ("/v1/capabilities", "", 401),
        ("/v1/capabilities", "Bearer correct-horse", 404),
        ("/v1/capabilities", "Bearer correct-horse", 404),
    ] {
        let request = Request::get(path).header(header::AUTHORIZATION, auth);
        let request = request.body(axum::body::Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status().as_u16(), status, "{path} {auth}");
    }
}
