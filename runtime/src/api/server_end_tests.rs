//! The end of a server over real sockets: who is answered, who is waited for, who is cut.

use serde_json::json;

use super::super::testing::{Client, DEADLINE, TestServer, patient};
use super::tests::{LIVE, assert_serves, flush, seed_pending, short};
use super::*;

#[tokio::test]
async fn a_client_that_takes_no_answer_is_given_up() {
    let limits = short(|limits, span| {
        limits.write_stall = span;
        limits.drain = DEADLINE;
    });
    let server = TestServer::start(limits).await;
    let mut client = server.connect().await;
    let request = "GET /nowhere HTTP/1.1\r\nhost: t\r\n\r\n".repeat(1000);
    let stuffed = async {
        while let Ok(true) = rt::within(Duration::from_millis(300), client.write(request.as_bytes())).await {}
    };
    rt::within(DEADLINE, stuffed).await.expect("buffers fill up");
    server.shutdown.cancel();
    assert_eq!(
        server.ended().await,
        Drained::Clean,
        "the connection was given up before the grace was over"
    );
}

#[tokio::test]
async fn the_end_finishes_requests_in_progress_and_closes_idle_connections() {
    let server = TestServer::start(patient()).await;
    seed_pending(&server);
    let mut fresh = server.connect().await;
    let mut idle = server.connect().await;
    idle.write(LIVE.as_bytes()).await;
    idle.reply().await;
    let mut busy = server.connect().await;
    busy.write(flush("prefer: wait=1\r\n").as_bytes()).await;
    server.waits().await;
    server.shutdown.cancel();
    let reply = busy.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (202, Some("close")));
    assert!(idle.is_closed().await);
    assert!(fresh.is_closed().await);
    let address = server.address;
    assert_eq!(server.ended().await, Drained::Clean);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
}

/// A client whose connection the system has accepted and the server has not, and whose request is there.
fn early(server: &TestServer) -> Client {
    use std::io::Write as _;
    // This thread is the only one of the runtime, so nothing runs meanwhile.
    let mut socket = std::net::TcpStream::connect(server.address).expect("listening");
    socket.write_all(LIVE.as_bytes()).expect("room for a request");
    socket.set_nonblocking(true).expect("a socket");
    Client(TcpStream::from_std(socket).expect("a socket"))
}

#[tokio::test]
async fn the_end_answers_whom_the_system_has_let_in() {
    let server = TestServer::start(short(|limits, _| limits.connections_max = 8)).await;
    // The server waits for its first connection by then.
    rt::sleep(Duration::from_millis(10)).await;
    let clients: Vec<_> = (0..9).map(|_| early(&server)).collect();
    server.shutdown.cancel();
    let mut answered = 0;
    for mut client in clients {
        let mut text = Vec::new();
        let all = tokio::io::AsyncReadExt::read_to_end(&mut client.0, &mut text);
        let _reset_or_end = rt::within(DEADLINE, all).await.expect("closed in time");
        answered += usize::from(text.starts_with(b"HTTP/1.1 200"));
    }
    assert_eq!(answered, 8, "as many as there are places");
    assert_eq!(server.ended().await, Drained::Clean);
}

#[tokio::test]
async fn the_end_waits_a_little_for_the_first_request_of_a_connection() {
    let server = TestServer::start(patient()).await;
    let mut fresh = server.connect().await;
    let mut silent = server.connect().await;
    let mut used = server.connect().await;
    used.write(LIVE.as_bytes()).await;
    used.reply().await;
    server.shutdown.cancel();
    // Closed at once, so the others have been told by now, too.
    assert!(used.is_closed().await);
    fresh.write(LIVE.as_bytes()).await;
    let reply = fresh.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(silent.is_closed().await);
}

#[tokio::test]
async fn the_end_cuts_what_the_grace_does_not_suffice_for() {
    let server = TestServer::start(short(|limits, span| limits.drain = span)).await;
    seed_pending(&server);
    let mut busy = server.connect().await;
    busy.write(flush("prefer: wait=30\r\n").as_bytes()).await;
    server.waits().await;
    server.shutdown.cancel();
    assert_eq!(server.ended().await, Drained::Cut(1));
    assert!(busy.is_closed().await);
}

#[tokio::test]
async fn a_flush_that_waits_is_answered_at_once_when_the_process_drains() {
    let server = TestServer::start(patient()).await;
    let id = seed_pending(&server);
    let mut busy = server.connect().await;
    busy.write(flush("prefer: wait=30\r\n").as_bytes()).await;
    server.waits().await;
    server.draining.cancel();
    let reply = busy.reply().await;
    assert_eq!((reply.status, reply.json()["operation_id"].clone()), (202, json!(id)));
    let ready = server.get("/health/ready").await;
    assert_eq!(
        (ready.status, ready.json()["status"].clone()),
        (503, json!("not_ready"))
    );
    assert_serves(&server).await;
}

#[tokio::test]
async fn a_process_that_leaves_takes_connections_each_for_one_answer() {
    let server = TestServer::start(patient()).await;
    let mut kept = server.connect().await;
    kept.write(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(kept.reply().await.header("connection"), None);
    server.draining.cancel();
    for mut client in [kept, server.connect().await] {
        client.write(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place_at_once() {
    let server = TestServer::start(patient()).await;
    seed_pending(&server);
    let mut client = server.connect().await;
    client.write(flush("prefer: wait=30\r\n").as_bytes()).await;
    server.waits().await;
    drop(client);
    server.shutdown.cancel();
    assert_eq!(server.ended().await, Drained::Clean, "nothing is left to wait for");
}
