//! Requests that are refused for every reason, each with a word in its bad place: the answer names the place alone.

use std::net::SocketAddr;

use anyhow::ensure;
use powercontext_tests::client::encoded;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::canary::{Canaries, Place};

/// Sends them all.
pub(crate) async fn refused(server: SocketAddr, canaries: &Canaries) -> anyhow::Result<()> {
    let (word, token) = (canaries.of(Place::Request), canaries.of(Place::Bearer));
    let http = reqwest::Client::builder().no_proxy().build()?;
    let to = |method: Method, path: &str| http.request(method, format!("http://{server}{path}"));
    let mut requests = strangers(canaries, &to(Method::GET, "/v1/capabilities"));
    requests.extend(paths(word).map(|(method, path)| to(method, &path).bearer_auth(token)));
    requests.extend(bodies(word).map(|(path, body)| to(Method::POST, path).bearer_auth(token).json(&body)));
    let post = || to(Method::POST, "/v1/sources/content").bearer_auth(token);
    let json = "application/json";
    requests.extend(raw_bodies(word).map(|body| post().header(CONTENT_TYPE, json).body(body)));
    requests.push(
        post()
            .header(CONTENT_TYPE, format!("text/{word}"))
            .body(word.to_owned()),
    );
    requests.push(
        to(Method::POST, "/v1/memory/flush")
            .bearer_auth(token)
            .header("prefer", format!("wait={word}"))
            .json(&json!({"scope_id": word.repeat(20)})),
    );
    for request in requests {
        let case = format!("{request:?}");
        let answer = request.send().await?;
        let (status, headers) = (answer.status(), format!("{:?}", answer.headers()));
        let text = format!("{status} {headers} {}", answer.text().await?);
        ensure!(status.is_client_error(), "{case} was not refused: {text}");
        canaries.absent(&format!("the answer to {case}"), &text, &[])?;
    }
    no_http(server, canaries).await
}

fn strangers(canaries: &Canaries, request: &RequestBuilder) -> Vec<RequestBuilder> {
    let wrong = canaries.of(Place::WrongBearer);
    let headers = [
        format!("Bearer {wrong}"),
        format!("Bearer {}{wrong}", canaries.of(Place::Bearer)),
        format!("Basic {wrong}"),
        format!("bearer  {wrong}"),
        wrong.to_owned(),
    ];
    let with = |value: String| request.try_clone().map(|request| request.header(AUTHORIZATION, value));
    headers.into_iter().filter_map(with).collect()
}

fn paths(word: &str) -> impl Iterator<Item = (Method, String)> {
    let control = encoded(&format!("{word}\u{202e}"));
    let paths = [
        (Method::GET, format!("/{word}")),
        (Method::GET, format!("/v1/{word}?{word}={word}")),
        (Method::DELETE, format!("/v1/operations/{word}")),
        (Method::GET, format!("/v1/operations/{word}")),
        (Method::POST, format!("/v1/operations/{word}/retry")),
        (Method::GET, format!("/v1/operations?cursor={word}")),
        (Method::GET, format!("/v1/operations?limit={word}")),
        (Method::GET, format!("/v1/operations?status={word}")),
        (Method::GET, format!("/v1/operations?scope_id={control}")),
        (Method::GET, format!("/{}", word.repeat(1000))),
    ];
    paths.into_iter()
}

/// Bodies in the form of JSON, each with one thing wrong.
fn bodies(word: &str) -> impl Iterator<Item = (&'static str, Value)> {
    let long = word.repeat(60);
    let source = |source: &str, content: Value, metadata: Value| {
        let body = json!({"scope_id": "s", "source_id": source, "content": content, "metadata": metadata});
        ("/v1/sources/content", body)
    };
    let sources = [
        source(&format!("{word}\0"), json!(word), Value::Null),
        source(&long, json!(word), Value::Null),
        source("s", json!({word: word}), Value::Null),
        source("s", json!(word), json!(word)),
        source("s", json!(word), json!([word])),
        ("/v1/sources/content", json!([word])),
        ("/v1/memory/flush", json!({"scope_id": [word]})),
    ];
    sources.into_iter().chain(entries(word, &long)).chain(searches(word))
}

fn entries(word: &str, long: &str) -> Vec<(&'static str, Value)> {
    let remember = |kind: &str, text: &str, reason: &str, revision: u32| {
        let body =
            json!({"scope_id": "s", "kind": kind, "text": text, "reason": reason, "expected_revision": revision});
        ("/v1/memory/remember", body)
    };
    let cited = |verb: &'static str, revision: u32| {
        let memory = json!({"family": "memory", "artifact_id": word, "revision": revision});
        let citation = json!({"memory_ref": memory, "entry_id": word, "entry_version_id": word});
        (verb, json!({"scope_id": "s", "citation": citation}))
    };
    let mut revise = cited("/v1/memory/entries/revise", 7);
    revise.1["kind"] = json!("fact");
    revise.1["text"] = json!(word);
    vec![
        remember(long, word, word, 1),
        remember("fact", &word.repeat(1000), word, 1),
        remember("fact", word, long, 1),
        remember("fact", word, word, 9),
        cited("/v1/memory/entries/get", 1),
        cited("/v1/memory/entries/get", 0),
        cited("/v1/memory/entries/retire", 7),
        revise,
    ]
}

fn searches(word: &str) -> Vec<(&'static str, Value)> {
    let search = |query: &str, mode: &str, limit: Value| {
        let body = json!({"scope_id": "s", "query": query, "mode": mode, "limit": limit});
        ("/v1/memory/search", body)
    };
    vec![
        search(&word.repeat(1000), "auto", json!(1)),
        search(word, word, json!(1)),
        search(word, "auto", json!(word)),
        (
            "/v1/memory/changes",
            json!({"scope_id": "s", "cursor": word, "limit": word}),
        ),
    ]
}

/// Bodies that are no acceptable JSON.
fn raw_bodies(word: &str) -> impl Iterator<Item = Vec<u8>> {
    let texts = [
        word.to_owned(),
        format!("{{\"{word}"),
        format!("{{\"scope_id\": \"{word}\\ud800\"}}"),
        format!("{{\"scope_id\": \"{word}\", \"scope_id\": \"{word}\"}}"),
        format!("{{\"scope_id\": {word}}}"),
        format!("{}\"{word}\"", "[".repeat(10_000)),
    ];
    let no_text = [b"{\"scope_id\": \"", word.as_bytes(), b"\xff\"}"].concat();
    texts.map(String::into_bytes).into_iter().chain([no_text])
}

/// Bytes that are no acceptable request.
async fn no_http(server: SocketAddr, canaries: &Canaries) -> anyhow::Result<()> {
    let word = canaries.of(Place::Request);
    let many = format!("x-{word}: {word}\r\n").repeat(300);
    for request in [
        format!("{word} {word}\r\n\r\n"),
        format!("GET /{word} {word}/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{word}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"),
        format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", word.repeat(2000)),
        format!("POST /{word} HTTP/1.1\r\nhost: a\r\ncontent-length: {word}\r\n\r\n"),
    ] {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // A server that refuses before it has read everything may reset the connection.
        let _ = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer).into_owned();
        canaries.absent("the answer to what is no request", &text, &[])?;
    }
    Ok(())
}
