//! Requests and answers, and both over a connection with a server at its other end.

use std::convert::Infallible;

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::*;

fn page(filter: &[(&'static str, &str)], cursor: Option<&str>) -> Question {
    Question::Page {
        filter: filter
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        cursor: cursor.map(str::to_owned),
        limit: 7,
    }
}

fn retry(id: &str) -> Question {
    Question::Act {
        act: Act::Retry,
        id: id.to_owned(),
        version: 3,
    }
}

#[test]
fn a_question_becomes_a_request_whose_parts_are_encoded() {
    for (question, method, target) in [
        (page(&[], None), "GET", "/v1/operations?limit=7"),
        (
            page(&[("scope_id", "a b&c/ü"), ("status", "failed")], Some("x=")),
            "GET",
            "/v1/operations?scope_id=a%20b%26c%2F%C3%BC&status=failed&cursor=x%3D&limit=7",
        ),
        (Question::One("a/../b".to_owned()), "GET", "/v1/operations/a%2F..%2Fb"),
        (retry("id"), "POST", "/v1/operations/id/retry"),
    ] {
        let request = request(&question, None).expect("a request");
        assert_eq!(
            (request.method().as_str(), request.uri().to_string().as_str()),
            (method, target)
        );
        assert!(request.headers().get("authorization").is_none());
    }
    let token = SecretString::from("secret");
    let request = request(&retry("id"), Some(&token)).expect("a request");
    assert_eq!(request.headers()["authorization"], "Bearer secret");
    assert!(!format!("{request:?}").contains("secret"));
}

#[test]
fn an_answer_is_the_value_or_what_a_person_should_do() {
    let ok = answer(&retry("id"), StatusCode::OK, b"{\"status\":\"queued\"}").expect("a value");
    assert_eq!(ok["status"], "queued");
    let error = |code: &str| {
        json!({ "error": { "code": code, "message": "Said.", "details": { "status": "running" } } }).to_string()
    };
    for (question, status, says, exit) in [
        (
            Question::One("id".to_owned()),
            404,
            "no operation id",
            super::super::ABSENT,
        ),
        (retry("id"), 409, "it is running", super::super::FAILED),
        (page(&[], None), 401, "tokenSecretRef", super::super::FAILED),
        (page(&[], None), 422, "(422): Said.", super::super::FAILED),
        (page(&[], None), 503, "answered 503: Said.", super::super::FAILED),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        let error = answer(&question, status, error("x").as_bytes()).expect_err("refused");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.status(), exit);
    }
}

#[test]
fn operations_are_told_in_columns() {
    let items = [
        json!({ "operation_id": "id-1", "kind": "memory_flush", "scope_id": "team", "status": "failed", "attempt_count": 5,
            "created_at": "2026-01-01T00:00:00Z", "error": { "category": "provider", "code": "provider_timeout" } }),
        json!({ "operation_id": "id-2", "kind": "memory_flush", "scope_id": "team", "status": "queued", "attempt_count": 0,
            "created_at": "2026-01-01T00:00:00Z", "error": null }),
    ];
    let now = "2026-01-01T00:05:00Z".parse().expect("a time");
    let text = rows(&items, now);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with("5m   team   provider/provider_timeout"), "{text}");
    assert!(lines[2].ends_with("5m   team"), "{text}");
    assert_eq!(with_code(&items, "provider_timeout"), ["id-1"]);
    assert_eq!(rows(&[], now), "no operation\n");
}

#[tokio::test]
async fn pages_are_read_one_after_the_other_up_to_the_limit_with_the_token() {
    let (near, far) = tokio::io::duplex(4096);
    rt::spawn(async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let token = request.headers().get("authorization").cloned();
            let target = request.uri().to_string();
            let _ = request.into_body().collect().await;
            let is_known = token.is_some_and(|token| token == "Bearer t");
            let (items, next) = match target.as_str() {
                "/v1/operations?status=failed&limit=100" => ((0..100).collect::<Vec<_>>(), json!("c")),
                "/v1/operations?status=failed&cursor=c&limit=50" => ((100..150).collect(), json!("d")),
                _ => (Vec::new(), Value::Null),
            };
            let body = json!({ "items": items, "next_cursor": next }).to_string();
            let mut response = Response::new(Full::new(Bytes::from(body)));
            if !is_known {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            Ok::<_, Infallible>(response)
        });
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
        serving.await.ok()
    });
    let token = Some(SecretString::from("t"));
    let mut api = Api::over(near, token, "here".to_owned()).await.expect("a connection");
    let items = page_by_page(&mut api, &[("status", "failed".to_owned())], 150)
        .await
        .expect("pages");
    let wanted: Vec<Value> = (0..150).map(Value::from).collect();
    assert_eq!(items, wanted);
}
