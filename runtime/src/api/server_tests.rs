//! The server over real sockets: limits, deadlines, malformed requests.

use serde_json::json;

use super::super::testing::{Client, DEADLINE, Reply, TestServer, patient, post};
use super::*;

pub(super) const LIVE: &str = "GET /health/live HTTP/1.1\r\nhost: t\r\n\r\n";

pub(super) fn short(change: impl FnOnce(&mut ServerLimits, Duration)) -> ServerLimits {
    let mut limits = patient();
    change(&mut limits, Duration::from_millis(150));
    limits
}

fn assert_refused(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{reply:?}");
    reply.assert_proper();
    assert_eq!(reply.code(), "invalid_request");
    assert_eq!(reply.header("connection"), Some("close"));
}

pub(super) async fn assert_serves(server: &TestServer) {
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_each_has_its_own_id() {
    let server = TestServer::start(patient()).await;
    let mut client = server.connect().await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..20 {
        client.write(LIVE.as_bytes()).await;
        let reply = client.reply().await;
        reply.assert_proper();
        assert_eq!((reply.status, reply.json()), (200, json!({"status": "ok"})));
        ids.insert(reply.header("x-powercontext-request-id").map(str::to_owned));
    }
    assert_eq!(ids.len(), 20);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_a_refused_one_ends_the_connection() {
    let server = TestServer::start(patient()).await;
    let mut client = server.connect().await;
    let body = json!({"scope_id": "s", "source_id": "a", "content": "c"}).to_string();
    let requests = [
        LIVE,
        &post("/v1/sources/content", "", &body),
        "GET /nowhere HTTP/1.1\r\nhost: t\r\n\r\n",
        "nonsense\r\n\r\n",
        LIVE,
    ];
    client.write(requests.concat().as_bytes()).await;
    for status in [200, 202, 404, 400] {
        let reply = client.reply().await;
        reply.assert_proper();
        assert_eq!(reply.status, status);
    }
    assert!(client.is_closed().await, "what follows a refused request is not read");
}

#[tokio::test]
async fn a_request_may_arrive_in_any_pieces() {
    let server = TestServer::start(patient()).await;
    let body = json!({"scope_id": "s", "source_id": "a", "content": "c"}).to_string();
    let request = format!("\r\n\r\n{}{LIVE}", post("/v1/sources/content", "", &body));
    let mut client = server.connect().await;
    client.0.set_nodelay(true).expect("a socket");
    for byte in request.as_bytes() {
        client.write(&[*byte]).await;
    }
    assert_eq!(client.reply().await.status, 202);
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn unknown_paths_and_methods_get_the_envelope() {
    let server = TestServer::start(patient()).await;
    for (line, status, code) in [
        ("GET /", 404, "not_found"),
        ("GET /health", 404, "not_found"),
        ("POST /v1/memory/flush/", 404, "not_found"),
        ("GET //health/live", 404, "not_found"),
        ("GET /health/live/%2e%2e", 404, "not_found"),
        ("OPTIONS *", 404, "not_found"),
        ("POST /health/live", 405, "method_not_allowed"),
        ("GET /v1/memory/flush", 405, "method_not_allowed"),
        (
            "DELETE /v1/operations/0198f0c2-8b1e-7c3a-9d52-3f7f4f0a1b2c",
            405,
            "method_not_allowed",
        ),
        ("BREW /v1/capabilities", 405, "method_not_allowed"),
        ("TRACE /v1/capabilities", 405, "method_not_allowed"),
    ] {
        let reply = server.send(&format!("{line} HTTP/1.1\r\nhost: t\r\n\r\n")).await;
        assert_eq!(reply.status, status, "{line}");
        reply.assert_proper();
        assert_eq!(reply.code(), code, "{line}");
        assert_eq!(reply.header("allow").is_some(), status == 405, "{line}");
    }
}

#[tokio::test]
async fn malformed_heads_are_answered_and_never_reach_a_handler() {
    let server = TestServer::start(patient()).await;
    let body = json!({"scope_id": "s", "source_id": "a", "content": "c"}).to_string();
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    for (fields, payload) in [
        (
            format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
            &chunked,
        ),
        (
            format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
            &chunked,
        ),
        (
            format!("content-length: {length}\r\ncontent-length: {length}\r\n"),
            &body,
        ),
        (format!("content-length: {length}, {length}\r\n"), &body),
        ("content-length: x\r\n".to_owned(), &body),
        ("content-length: 99999999999999999999\r\n".to_owned(), &body),
        ("transfer-encoding: gzip, chunked\r\n".to_owned(), &chunked),
        (format!("host: other\r\ncontent-length: {length}\r\n"), &body),
    ] {
        let head = "POST /v1/sources/content HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n";
        let reply = server.send(&format!("{head}{fields}\r\n{payload}")).await;
        assert_refused(&reply, 400);
    }
    assert_eq!(server.calls(), Vec::<String>::new());
    assert_refused(&server.send("\u{16}\u{3}\u{1}\r\n\r\n").await, 400);
    assert_refused(&server.send("GET / HTTP/1.1\r\n\r\n").await, 400);
    assert_serves(&server).await;
}

#[tokio::test]
async fn a_head_is_bounded_in_bytes_and_fields() {
    let server = TestServer::start(patient()).await;
    let with_fields = |count: usize| {
        let fields = "x: y\r\n".repeat(count - 1);
        format!("GET /health/live HTTP/1.1\r\nhost: t\r\n{fields}\r\n")
    };
    let with_bytes = |bytes: usize| {
        let head = "GET /health/live HTTP/1.1\r\nhost: t\r\nx: ";
        format!("{head}{}\r\n\r\n", "y".repeat(bytes - head.len() - 4))
    };
    assert_eq!(server.send(&with_fields(100)).await.status, 200);
    assert_eq!(server.send(&with_bytes(16 * 1024)).await.status, 200);
    for (request, status) in [
        (with_fields(101), 431),
        (with_fields(200), 431),
        (with_bytes(16 * 1024 + 1), 431),
        (with_bytes(20 * 1024), 431),
        (with_bytes(4 << 20), 431),
        (
            format!("GET /{} HTTP/1.1\r\nhost: t\r\n\r\n", "x".repeat(20 * 1024)),
            414,
        ),
    ] {
        assert_refused(&server.send(&request).await, status);
    }
    assert_serves(&server).await;
}

#[tokio::test]
async fn a_slow_head_is_answered_408_and_a_silent_connection_is_closed() {
    let server = TestServer::start(short(|limits, span| limits.head_read = span)).await;
    let mut slow = server.connect().await;
    slow.write(b"GET /health/live HTTP/1.1\r\nhost: t\r\nx: ").await;
    let dripping = async {
        loop {
            rt::sleep(Duration::from_millis(10)).await;
            slow.write(b"y").await;
            let mut byte = [0];
            if slow.0.try_read(&mut byte).is_ok_and(|read| read == 1) {
                return byte[0];
            }
        }
    };
    assert_eq!(
        rt::within(DEADLINE, dripping).await,
        Ok(b'H'),
        "answered while it still sends"
    );
    let mut once = server.connect().await;
    once.write(b"GET /he").await;
    assert_refused(&once.reply().await, 408);
    let mut blank_lines = server.connect().await;
    blank_lines.write(b"\r\n\r\n").await;
    assert!(blank_lines.is_closed().await);
    assert!(server.connect().await.is_closed().await);
}

#[tokio::test]
async fn an_idle_connection_is_closed_but_not_while_its_request_is_answered() {
    let server = TestServer::start(short(|limits, span| {
        limits.idle = span;
        limits.head_read = span;
    }))
    .await;
    let id = seed_pending(&server);
    let mut client = server.connect().await;
    client.write(LIVE.as_bytes()).await;
    client.reply().await;
    client.write(flush("prefer: wait=1\r\n").as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.json()["operation_id"].clone()), (202, json!(id)));
    assert!(client.is_closed().await, "idle for too long afterwards");
}

#[tokio::test]
async fn a_body_of_4_mib_is_read_and_one_byte_more_is_413() {
    let server = TestServer::start(patient()).await;
    let max = patient().body_bytes_max;
    let padded = |bytes: usize| {
        let body = json!({"scope_id": "s", "source_id": "a", "content": "c"}).to_string();
        format!("{body}{}", " ".repeat(bytes - body.len()))
    };
    assert_eq!(
        server.send(&post("/v1/sources/content", "", &padded(max))).await.status,
        202
    );
    let too_large = padded(max + 1);
    let head = "POST /v1/sources/content HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n";
    let calls = server.calls().len();

    assert_refused(&server.send(&post("/v1/sources/content", "", &too_large)).await, 413);
    let declared_only = format!("{head}content-length: {}\r\n\r\n", max + 1);
    assert_refused(&server.send(&declared_only).await, 413);
    let chunked = format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{too_large}\r\n0\r\n\r\n",
        max + 1
    );
    assert_refused(&server.send(&chunked).await, 413);
    assert_eq!(server.calls().len(), calls, "no work done");

    // Shorter than declared: what is left out never comes.
    let mut short = server.connect().await;
    short
        .write(format!("{head}content-length: 100\r\n\r\n{{}}").as_bytes())
        .await;
    tokio::io::AsyncWriteExt::shutdown(&mut short.0)
        .await
        .expect("a socket");
    let _either_closed_or_answered = short.is_closed().await;
    assert_eq!(server.calls().len(), calls, "no work done");
    assert_serves(&server).await;
}

#[tokio::test]
async fn an_endless_chunked_body_is_cut_at_the_limit() {
    let server = TestServer::start(patient()).await;
    let mut client = server.connect().await;
    let head = "POST /v1/memory/search HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n";
    client
        .write(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes())
        .await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let (mut receive, mut send) = client.0.into_split();
    let flood = rt::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        while send.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let mut text = Vec::new();
    let all = tokio::io::AsyncReadExt::read_to_end(&mut receive, &mut text);
    let _reset_or_end = rt::within(DEADLINE, all).await.expect("closed in time");
    assert!(String::from_utf8_lossy(&text).starts_with("HTTP/1.1 413"), "{text:?}");
    rt::within(DEADLINE, flood)
        .await
        .expect("refused in time")
        .expect("no panic");
    assert_serves(&server).await;
}

#[tokio::test]
async fn a_body_that_stalls_or_drips_is_answered_408() {
    let head = post("/v1/memory/search", "", &" ".repeat(1000));
    let head = &head[..head.len() - 999];
    let server = TestServer::start(short(|limits, span| limits.body_gap = span)).await;
    assert_refused(&server.send(head).await, 408);

    let server = TestServer::start(short(|limits, span| limits.body_total = span)).await;
    let mut client = server.connect().await;
    client.write(head.as_bytes()).await;
    let dripping = async {
        loop {
            rt::sleep(Duration::from_millis(10)).await;
            client.write(b" ").await;
            let mut start = [0; 12];
            if let Ok(read @ 1..) = client.0.try_read(&mut start) {
                return start[..read].to_vec();
            }
        }
    };
    let start = rt::within(DEADLINE, dripping).await.expect("answered while it drips");
    assert_eq!(start, b"HTTP/1.1 408");
}

#[tokio::test]
async fn broken_chunks_are_answered_400() {
    let server = TestServer::start(patient()).await;
    let head = "POST /v1/memory/search HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n";
    for chunks in [
        "zz\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx0\r\n\r\n",
        "ffffffffffffffffff\r\n{}",
    ] {
        let reply = server
            .send(&format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}"))
            .await;
        assert_refused(&reply, 400);
    }
    let good = format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
    let reply = server.send(&good).await;
    assert_eq!(
        (reply.status, reply.header("connection")),
        (422, Some("close")),
        "one request a connection"
    );
}

#[tokio::test]
async fn a_stray_body_on_a_get_is_ignored() {
    let server = TestServer::start(patient()).await;
    let with_body = |body: &str| {
        format!(
            "GET /v1/capabilities HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for body in ["", "{}", "not json", &"x".repeat(5 << 20)] {
        assert_eq!(server.send(&with_body(body)).await.status, 200);
    }
}

#[tokio::test]
async fn expect_continue_is_answered_before_the_body_is_sent_unless_it_is_too_large() {
    let server = TestServer::start(patient()).await;
    let head =
        "POST /v1/memory/search HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n";
    let mut client = server.connect().await;
    client
        .write(format!("{head}content-length: 2\r\n\r\n").as_bytes())
        .await;
    let mut interim = [0; 25];
    let read = tokio::io::AsyncReadExt::read_exact(&mut client.0, &mut interim);
    rt::within(DEADLINE, read)
        .await
        .expect("in time")
        .expect("an interim answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write(b"{}").await;
    assert_eq!(client.reply().await.status, 422);

    let mut client = server.connect().await;
    client
        .write(format!("{head}content-length: {}\r\n\r\n", 5 << 20).as_bytes())
        .await;
    assert_refused(&client.reply().await, 413);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_turned_away_and_a_freed_place_is_given_again() {
    let server = TestServer::start(short(|limits, _| limits.connections_max = 2)).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for client in [&mut first, &mut second] {
        client.write(LIVE.as_bytes()).await;
        client.reply().await;
    }
    let mut third = server.connect().await;
    let reply = third.reply().await;
    reply.assert_proper();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(third.is_closed().await);
    drop(first);
    let freed = async {
        loop {
            if server.get("/health/live").await.status == 200 {
                break;
            }
            rt::sleep(Duration::from_millis(5)).await;
        }
    };
    rt::within(DEADLINE, freed).await.expect("a place becomes free");
}

#[tokio::test]
async fn slow_and_idle_connections_do_not_stop_a_healthy_client() {
    let server = TestServer::start(patient()).await;
    let mut held: Vec<Client> = Vec::new();
    for n in 0..200 {
        let mut client = server.connect().await;
        if n % 4 == 0 {
            client.write(b"POST /v1/memory/search HTTP/1.1\r\nhost").await;
        }
        held.push(client);
    }
    let mut healthy = server.connect().await;
    for _ in 0..100 {
        healthy.write(LIVE.as_bytes()).await;
        assert_eq!(healthy.reply().await.status, 200);
    }
}

#[tokio::test]
async fn a_panic_is_a_plain_500() {
    let server = TestServer::start(patient()).await;
    server.app.script().panics = true;
    let reply = server.get("/v1/capabilities").await;
    reply.assert_proper();
    assert_eq!((reply.status, reply.code()), (500, "internal_error".to_owned()));
    assert!(!String::from_utf8_lossy(&reply.body).contains("secret"));
    let ready = server.get("/health/ready").await;
    assert_eq!(
        (ready.status, ready.json()["checks"].clone()),
        (503, json!({"runtime": "unavailable"}))
    );
    assert_serves(&server).await;
}

pub(super) fn flush(fields: &str) -> String {
    post("/v1/memory/flush", fields, &json!({"scope_id": "s"}).to_string())
}

pub(super) fn seed_pending(server: &TestServer) -> String {
    let operation = super::super::routes_tests::operation(1, super::super::app::OperationStatus::Running);
    let id = operation.id;
    let mut script = server.app.script();
    script.flush = Some(super::super::app::FlushStart::Admitted { id });
    script.operations = vec![operation];
    id.to_string()
}
