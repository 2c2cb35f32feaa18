//! Every fault of a request that we know of, at the real server: a clear 4xx with an error of ours, and not a byte in the
//! database is another one afterwards. What is to be ignored is ignored.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::capture;
use powercontext_tests::provider::Provider;
use powercontext_tests::rows;
use powercontext_tests::server::{Server, Setup};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

powercontext_tests::on_both_databases! {
    every_fault_of_a_request_is_a_clear_4xx_and_writes_nothing,
    what_a_flush_prefers_is_never_a_fault,
}

const TOKEN: &str = "Tok3n";
/// Longest wait for an answer; a header may take 10 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A request as bytes, and the statuses that say what is wrong with it.
struct Fault {
    name: String,
    bytes: Vec<u8>,
    statuses: &'static [u16],
    /// Pause between bytes.
    drip: Option<Duration>,
    /// Sent again and again until the server has had enough.
    endless: Option<Vec<u8>>,
}

fn fault(name: impl Into<String>, bytes: impl Into<Vec<u8>>, statuses: &'static [u16]) -> Fault {
    Fault {
        name: name.into(),
        bytes: bytes.into(),
        statuses,
        drip: None,
        endless: None,
    }
}

fn head(line: &str, fields: &str) -> String {
    let ours = format!("host: t\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n");
    format!("{line} HTTP/1.1\r\n{ours}{fields}\r\n")
}

fn get(path: &str) -> Vec<u8> {
    head(&format!("GET {path}"), "").into_bytes()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let fields = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    (head(&format!("POST {path}"), &fields) + body).into_bytes()
}

const CAPTURE: &str = "/v1/sources/content";

/// A body that is right but for its size.
fn body_of(bytes: usize) -> String {
    let body = r#"{"scope_id":"house","source_id":"big","content":"user: I like tea."}"#;
    format!("{body}{}", " ".repeat(bytes - body.len()))
}

fn bodies() -> Vec<Fault> {
    let large = body_of(BODY_BYTES_MAX + 1);
    let declared = |length: usize, body: &str| {
        let fields = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        (head(&format!("POST {CAPTURE}"), &fields) + body).into_bytes()
    };
    let chunked = |more: &str| {
        let fields = format!("content-type: application/json\r\n{more}transfer-encoding: chunked\r\n");
        head(&format!("POST {CAPTURE}"), &fields).into_bytes()
    };
    let small = body_of(100);
    let both = [
        chunked("content-length: 100\r\n"),
        format!("64\r\n{small}\r\n0\r\n\r\n").into_bytes(),
    ]
    .concat();
    vec![
        fault("4 MiB + 1", declared(large.len(), &large), &[413]),
        fault("4 MiB + 1 that says it is 10 bytes", declared(10, &large), &[422]),
        fault(
            "10 bytes that say they are 4 MiB + 1",
            declared(BODY_BYTES_MAX + 1, &large[..10]),
            &[413],
        ),
        fault(
            "10 bytes that say they are 100",
            declared(100, &small[..10]),
            &[400, 408],
        ),
        Fault {
            endless: Some(format!("10000\r\n{}\r\n", " ".repeat(0x10000)).into_bytes()),
            ..fault("an endless body in chunks", chunked(""), &[413])
        },
        fault("a length beside an encoding", both, &[400]),
        fault("deep", post(CAPTURE, &"[".repeat(10_000)), &[422]),
        fault(
            "deep inside a member",
            post(
                CAPTURE,
                &format!(
                    r#"{{"scope_id":"house","source_id":"deep","content":"c","metadata":{}1{}}}"#,
                    r#"{"a":"#.repeat(10_000),
                    "}".repeat(10_000)
                ),
            ),
            &[422],
        ),
        fault(
            "a name twice",
            post(
                CAPTURE,
                r#"{"scope_id":"house","scope_id":"other","source_id":"s","content":"c"}"#,
            ),
            &[422],
        ),
        fault(
            "a name twice inside metadata",
            post(
                CAPTURE,
                r#"{"scope_id":"house","source_id":"s","content":"c","metadata":{"a":1,"a":2}}"#,
            ),
            &[422],
        ),
    ]
}

fn heads() -> Vec<Fault> {
    let many = "x: 1\r\n".repeat(200);
    let long = format!("x-long: {}\r\n", "a".repeat(20 * 1024));
    vec![
        fault("200 headers", head("GET /v1/capabilities", &many), &[431]),
        fault("a header of 20 KiB", head("GET /v1/capabilities", &long), &[431]),
        Fault {
            drip: Some(Duration::from_secs(1)),
            ..fault("a byte of a header a second", head("GET /v1/capabilities", ""), &[408])
        },
    ]
}

fn bearers() -> Vec<Fault> {
    let with = |fields: &str| format!("GET /v1/capabilities HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{fields}\r\n");
    let bearer = |value: &str| with(&format!("authorization: {value}\r\n"));
    vec![
        fault("no bearer", with(""), &[401]),
        fault("an empty bearer", bearer("Bearer "), &[401]),
        fault("only the scheme", bearer("Bearer"), &[401]),
        fault("a doubled scheme", bearer(&format!("Bearer Bearer {TOKEN}")), &[401]),
        fault("a doubled token", bearer(&format!("Bearer {TOKEN} {TOKEN}")), &[401]),
        fault(
            "two fields",
            with(&format!(
                "authorization: Bearer {TOKEN}\r\nauthorization: Bearer {TOKEN}\r\n"
            )),
            &[400, 401],
        ),
        fault("1 MiB", bearer(&format!("Bearer {}", "a".repeat(1024 * 1024))), &[431]),
        fault(
            "in small letters",
            bearer(&format!("Bearer {}", TOKEN.to_lowercase())),
            &[401],
        ),
        fault("another scheme", bearer(&format!("Basic {TOKEN}")), &[401]),
    ]
}

fn ids() -> Vec<Fault> {
    let bad = [
        ("NUL", "\\u0000"),
        ("a lone surrogate", "\\ud800"),
        ("a half pair", "\\udc00x"),
        ("U+202E", "\\u202e"),
    ];
    let mut faults = Vec::new();
    for (name, bad) in bad {
        for (member, scope, source) in [("scope", bad, "s"), ("source", "house", bad)] {
            let body = format!(r#"{{"scope_id":"a{scope}","source_id":"a{source}","content":"c"}}"#);
            faults.push(fault(format!("{name} in a {member}"), post(CAPTURE, &body), &[422]));
        }
        let body = format!(r#"{{"scope_id":"house{bad}"}}"#);
        faults.push(fault(
            format!("{name} in a flush"),
            post("/v1/memory/flush", &body),
            &[422],
        ));
    }
    for encoded in ["%00", "%E2%80%AE", "%ED%A0%80", "%FF"] {
        let path = format!("/v1/operations?scope_id=house{encoded}");
        faults.push(fault(format!("{encoded} in a query"), get(&path), &[422]));
        faults.push(fault(
            format!("{encoded} in a path"),
            get(&format!("/v1/operations/{encoded}")),
            &[404, 422],
        ));
    }
    faults
}

fn versions(operation: &str) -> Vec<Fault> {
    let bodies = [
        r#"{"expected_version":-1}"#,
        r#"{"expected_version":0}"#,
        r#"{"expected_version":9223372036854775808}"#,
        r#"{"expected_version":"1"}"#,
        r#"{"expected_version":1.0}"#,
        r#"{"expected_version":1e0}"#,
        r#"{"expected_version":true}"#,
        r#"{"expected_version":null}"#,
        "{}",
    ];
    let mut faults = Vec::new();
    for act in ["cancel", "retry"] {
        let path = format!("/v1/operations/{operation}/{act}");
        let bad = bodies
            .iter()
            .map(|body| fault(format!("{act} {body}"), post(&path, body), &[422]));
        faults.extend(bad);
        // The largest version that could be: it is not this one.
        let body = r#"{"expected_version":9007199254740991}"#;
        faults.push(fault(format!("{act} {body}"), post(&path, body), &[409]));
    }
    faults
}

/// `cursor` is one that this server has made.
fn pages(cursor: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for limit in ["0", "-1", "1000000000", "1.0", "", "101"] {
        faults.push(fault(
            format!("limit {limit}"),
            get(&format!("/v1/operations?limit={limit}")),
            &[422],
        ));
    }
    for limit in ["0", "-1", "1000000000"] {
        for (path, rest) in [("search", r#","query":"tea""#), ("changes", "")] {
            let body = format!(r#"{{"scope_id":"house","limit":{limit}{rest}}}"#);
            faults.push(fault(
                format!("{path} {body}"),
                post(&format!("/v1/memory/{path}"), &body),
                &[422],
            ));
        }
    }
    let cut: Vec<_> = [1, 2, 3, cursor.len() / 2, cursor.len() - 1]
        .map(|end| cursor[..cursor.len() - end].to_owned())
        .into();
    // Base64 of: a list of one, a list of two numbers, an object, a pair whose id is none, a pair whose time is none.
    let forged = [
        "WyJhIl0",
        "WzEsMl0",
        "eyJhIjoxfQ",
        "WyIyMDI2LTAxLTAxVDAwOjAwOjAwWiIsIm5vIl0",
        "WyJubyIsIjAxOTNlMGEwLTAwMDAtNzAwMC04MDAwLTAwMDAwMDAwMDAwMCJd",
        "not+base64/at=all",
    ];
    // Of another list: an id, and the number of a revision.
    let foreign = ["0193e0a0-0000-7000-8000-000000000000", "7"];
    let doubled = format!("{cursor}{cursor}");
    for bad in cut
        .iter()
        .map(String::as_str)
        .chain(forged)
        .chain(foreign)
        .chain([doubled.as_str()])
    {
        faults.push(fault(
            format!("cursor {bad}"),
            get(&format!("/v1/operations?cursor={bad}")),
            &[422],
        ));
    }
    let body = format!(r#"{{"scope_id":"house","cursor":"{cursor}"}}"#);
    faults.push(fault(
        "the cursor of another list",
        post("/v1/memory/changes", &body),
        &[422],
    ));
    faults
}

/// Sends a fault and answers status, and body as far as it is JSON.
async fn send(server: SocketAddr, fault: &Fault) -> anyhow::Result<(u16, Value)> {
    let stream = TcpStream::connect(server).await?;
    let (mut reader, mut writer) = stream.into_split();
    let (bytes, drip, endless) = (fault.bytes.clone(), fault.drip, fault.endless.clone());
    // A server that has had enough resets the connection; its answer is what counts.
    let writing = rt::spawn(async move {
        if let Some(pause) = drip {
            for byte in bytes {
                writer.write_all(&[byte]).await?;
                rt::sleep(pause).await;
            }
        } else {
            writer.write_all(&bytes).await?;
        }
        while let Some(more) = &endless {
            writer.write_all(more).await?;
        }
        // Not closed on this side: the server would take that for a client that has gone.
        std::io::Result::Ok(writer)
    });
    let mut answer = Vec::new();
    let read = rt::within(ANSWERED_WITHIN, reader.read_to_end(&mut answer)).await;
    writing.abort();
    read.context("no end of the answer")?.ok();
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    // Only the first answer: what follows a wrong length may look like another request.
    let body = serde_json::Deserializer::from_str(body).into_iter::<Value>().next();
    let status = status.with_context(|| format!("no answer: {text:?}"))?;
    Ok((status, body.transpose().ok().flatten().unwrap_or_default()))
}

/// Every byte of every table, but for what a process that is alone renews.
async fn stored(database: &Database) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = rows::all(database).await?;
    all.retain(|column, _| !column.starts_with("pc_scheduler_leases.") && !column.starts_with("pc_runtime_members."));
    Ok(all)
}

async fn started(database: &Database) -> anyhow::Result<(Server, Client, Provider)> {
    let provider = Provider::start().await?;
    let server = Setup::new(database, &provider)
        .with("AUTH_ENABLED", "true")
        .with("AUTH_TOKEN", TOKEN)
        .start()
        .await?;
    let client = server.client.clone().bearing(TOKEN)?;
    Ok((server, client, provider))
}

async fn every_fault_of_a_request_is_a_clear_4xx_and_writes_nothing(database: Database) -> anyhow::Result<()> {
    let (server, client, provider) = started(&database).await?;
    // Two operations that wait for an operator, so that nothing moves by itself.
    provider.refuse(401, "no")?;
    let mut operation = String::new();
    for scope in ["house", "garden"] {
        capture(&client, scope, 1).await?;
        operation = client.flush(scope, "wait=25").await?.expect(409)?.operation_id()?;
    }
    let page = client.get("/v1/operations?limit=1").await?.expect(200)?.body;
    let cursor = page["next_cursor"]
        .as_str()
        .with_context(|| format!("no cursor in {page}"))?;
    let before = stored(&database).await?;

    let mut faults = JoinSet::new();
    let all = [bodies(), heads(), bearers(), ids(), versions(&operation), pages(cursor)];
    for fault in all.into_iter().flatten() {
        let address = server.address;
        faults.spawn(async move {
            let answered = send(address, &fault).await;
            (fault, answered)
        });
    }
    for (fault, answered) in faults.join_all().await {
        let (status, body) = answered.with_context(|| fault.name.clone())?;
        ensure!(fault.statuses.contains(&status), "{}: {status} {body}", fault.name);
        let error = &body["error"];
        let is_clear = error["code"].is_string() && error["message"].is_string() && error.get("details").is_some();
        ensure!(is_clear, "{}: {status} {body}", fault.name);
    }
    let after = stored(&database).await?;
    for (column, rows) in &after {
        ensure!(before.get(column) == Some(rows), "{column} has changed");
    }
    // The scheme's letters do not count, the token's do.
    let small = head("GET /v1/capabilities", "").replace("Bearer", "bearer");
    ensure!(send(server.address, &fault("scheme", small, &[])).await?.0 == 200);
    let log = server.log();
    ensure!(!log.contains("panicked") && !log.contains(TOKEN), "{log}");
    facts::hold(&database).await?;
    server.stop().await
}

async fn what_a_flush_prefers_is_never_a_fault(database: Database) -> anyhow::Result<()> {
    let (server, _client, _provider) = started(&database).await?;
    let before = stored(&database).await?;
    let body = r#"{"scope_id":"nothing"}"#;
    let long = format!("prefer: {}\r\n", "wait=1,".repeat(1000));
    for prefer in [
        "",
        "prefer:\r\n",
        "prefer: respond-async\r\n",
        "prefer: RESPOND-ASYNC; foo=1\r\n",
        "prefer: wait=0\r\n",
        "prefer: wait=-1\r\n",
        "prefer: wait=1000000000\r\n",
        "prefer: wait=99999999999999999999999\r\n",
        "prefer: wait=1.5\r\n",
        "prefer: wait=\"1\"\r\n",
        "prefer: wait\r\n",
        "prefer: wait=\r\n",
        "prefer: ,,;;==\r\n",
        "prefer: wait=1\r\nprefer: respond-async\r\nprefer: wait=2\r\n",
        "prefer: respond-sync, return=minimal, handling=strict\r\n",
        "prefer: \u{e9}\u{202e}\r\n",
        &long,
    ] {
        let fields = format!(
            "content-type: application/json\r\ncontent-length: {}\r\n{prefer}",
            body.len()
        );
        let request = head("POST /v1/memory/flush", &fields) + body;
        let (status, answer) = send(server.address, &fault(prefer, request, &[])).await?;
        ensure!(
            status == 200 && answer["status"] == "idle",
            "{prefer:?}: {status} {answer}"
        );
    }
    ensure!(
        stored(&database).await? == before,
        "a flush of nothing left rows behind"
    );
    server.stop().await
}
