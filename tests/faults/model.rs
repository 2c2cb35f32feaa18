//! A model provider that is hostile or broken in every way bytes can be: each is one bounded code within the budget of one
//! generation, and nothing that the provider said comes out of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use powercontext::families::host::SourceUse;
use powercontext::families::{
    Cancel, Committed, DomainWrite, HostError, Load, Loaded, LoadedSource, ProcessorHost, Reserve, Reserved, Search,
    SearchHit,
};
use powercontext::rt;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, SourceId, SourceType};
use powercontext_core::refs::{Cursor, Position, SourceRef};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::kit::family;

/// Budget of one generation, repair included.
const BUDGET: Duration = Duration::from_secs(2);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(1);

/// What the provider does with a request once it has read it.
#[derive(Debug, Clone)]
enum Reply {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends the first, then the second again and again, with a pause between.
    Endless(Vec<u8>, Vec<u8>, Duration),
    /// Says nothing and stays.
    Silence,
    /// Resets the connection after these bytes.
    Reset(Vec<u8>),
}

/// A provider on loopback that ends with the test.
struct Provider {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Provider {
    async fn new(reply: Reply) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let task = rt::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reply, count) = (reply.clone(), Arc::clone(&count));
                rt::spawn(async move {
                    // A client that gives up is what these tests want.
                    let _ = answer(stream, reply, &count).await;
                });
            }
        });
        Ok(Self { address, asked, task })
    }
}

async fn answer(mut stream: TcpStream, reply: Reply, asked: &AtomicUsize) -> anyhow::Result<()> {
    read_request(&mut stream).await?;
    asked.fetch_add(1, Ordering::SeqCst);
    match reply {
        Reply::Bytes(bytes) => stream.write_all(&bytes).await?,
        Reply::Endless(first, again, pause) => {
            stream.write_all(&first).await?;
            loop {
                stream.write_all(&again).await?;
                rt::sleep(pause).await;
            }
        }
        Reply::Silence => {
            stream.read_u8().await?;
        }
        Reply::Reset(bytes) => {
            stream.write_all(&bytes).await?;
            stream.set_zero_linger()?;
        }
    }
    Ok(())
}

/// Reads a request with its body.
async fn read_request(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        ensure!(stream.read_buf(&mut bytes).await? > 0, "no whole request");
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.context("a request without a length")?.trim().parse()?;
    while bytes.len() < head + length {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "no whole body");
    }
    Ok(())
}

fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn ok(body: &[u8]) -> Reply {
    Reply::Bytes(http(
        "200 OK",
        "Content-Type: application/json\r\nConnection: close\r\n",
        body,
    ))
}

/// A completion that says this.
fn says(text: &str) -> Reply {
    ok(
        json!({"choices": [{"message": {"role": "assistant", "content": text}}]})
            .to_string()
            .as_bytes(),
    )
}

/// An answer of the right form with one candidate that cites this.
fn citing(evidence: &str) -> Reply {
    let candidate = json!({"intent": "add", "kind": "fact", "text": "The sky is blue.", "evidence_ids": [evidence]});
    says(&json!({"candidates": [candidate]}).to_string())
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// One chunk of this text.
fn chunk(text: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// How a run of the Memory family ends with this provider, how often it asked, and that it ended in time.
async fn run(what: &str, reply: Reply) -> anyhow::Result<(Option<FailCode>, usize)> {
    let provider = Provider::new(reply).await?;
    let family = family(provider.address, BUDGET)?;
    let started = rt::now();
    let ended = family.run(&Window, &ScopeId::parse("s")?, &Cancel::new()).await;
    let took = started.elapsed();
    ensure!(took <= BUDGET + SLACK, "{what}: it took {took:?}");
    Ok((ended.err(), provider.asked.load(Ordering::SeqCst)))
}

async fn ends(what: &str, reply: Reply, code: FailCode, asked: usize) -> anyhow::Result<()> {
    let ended = run(what, reply).await?;
    ensure!(ended == (Some(code), asked), "{what}: {ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_good_answer_passes_so_that_what_fails_below_fails_for_its_reason() -> anyhow::Result<()> {
    ensure!(run("good", citing("source:0")).await? == (None, 1));
    Ok(())
}

#[tokio::test]
async fn answers_of_a_wrong_form_are_asked_for_twice_and_then_invalid() -> anyhow::Result<()> {
    let html = b"<html><body>Log in, please</body></html>";
    let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    for (what, reply) in [
        (
            "HTML with 200",
            Reply::Bytes(http("200 OK", "Content-Type: text/html\r\n", html)),
        ),
        ("nothing", ok(b"")),
        ("no content", says("")),
        ("a list", ok(b"[]")),
        (
            "bytes that are no UTF-8",
            ok(b"{\"choices\": [{\"message\": {\"content\": \"\xff\xfe\"}}]}"),
        ),
        (
            "half a code point",
            ok(b"{\"choices\": [{\"message\": {\"content\": \"\\ud83d\"}}]}"),
        ),
        ("10,000 brackets", ok(&deep)),
        ("prose", says("I would rather not.")),
        ("another schema", says("{\"answer\": 42}")),
        (
            "a candidate of another schema",
            says("{\"candidates\": [{\"text\": 1}]}"),
        ),
        ("204", Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())),
    ] {
        ends(what, reply, FailCode::ProviderInvalidOutput, 2).await?;
    }
    Ok(())
}

#[tokio::test]
async fn citations_outside_the_window_are_invalid() -> anyhow::Result<()> {
    for outside in [
        "source:1",
        "source:-1",
        "source:00",
        "source:18446744073709551616",
        "entry:0",
        "",
        "source:0 ",
    ] {
        ends(outside, citing(outside), FailCode::ProviderInvalidOutput, 2).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_without_end_is_cut_by_size_or_by_time() -> anyhow::Result<()> {
    let flood = Reply::Endless(CHUNKED.to_vec(), chunk(&b" ".repeat(64 * 1024)), Duration::ZERO);
    let (code, asked) = run("a flood", flood).await?;
    // A machine that cannot deliver 4 MiB in time twice runs out of it.
    let cut = matches!(code, Some(FailCode::ProviderInvalidOutput | FailCode::ProviderTimeout));
    ensure!(cut && asked <= 2, "a flood: {code:?} after {asked}");
    let second = Duration::from_secs(1);
    let slow = Reply::Endless(CHUNKED.to_vec(), chunk(b" "), second);
    ends("one byte a second", slow, FailCode::ProviderTimeout, 1).await?;
    let slow_head = Reply::Endless(b"HTTP/1.1 200 OK\r\nX-Slow: ".to_vec(), b"a".to_vec(), second);
    ends("a header of one byte a second", slow_head, FailCode::ProviderTimeout, 1).await?;
    ends("silence", Reply::Silence, FailCode::ProviderTimeout, 1).await?;
    Ok(())
}

#[tokio::test]
async fn broken_exchanges_are_an_unavailable_provider() -> anyhow::Result<()> {
    let short = http("200 OK", "", b"{}").as_slice().to_vec();
    let short = [&short[..short.len() - 1]].concat();
    for (what, reply) in [
        ("no HTTP", Reply::Bytes(b"SSH-2.0-OpenSSH_9.7\r\n\r\n".to_vec())),
        ("closed at once", Reply::Bytes(Vec::new())),
        ("a body that is too short", Reply::Bytes(short)),
        ("a reset in the body", Reply::Reset(CHUNKED.to_vec())),
        (
            "headers without end",
            Reply::Endless(
                b"HTTP/1.1 200 OK\r\n".to_vec(),
                b"X-More: yes\r\n".repeat(4096),
                Duration::ZERO,
            ),
        ),
        (
            "500",
            Reply::Bytes(http("500 Internal Server Error", "", b"the secret")),
        ),
        (
            "429 for 30 years",
            Reply::Bytes(http("429 Too Many Requests", "Retry-After: 1000000000\r\n", b"")),
        ),
        (
            "429 for a negative time",
            Reply::Bytes(http("429 Too Many Requests", "Retry-After: -1\r\n", b"")),
        ),
    ] {
        let (code, _) = run(what, reply).await?;
        ensure!(code == Some(FailCode::ProviderUnavailable), "{what}: {code:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_refused_and_followed_nowhere() -> anyhow::Result<()> {
    let other = Provider::new(citing("source:0")).await?;
    for status in [
        "301 Moved",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let location = format!("Location: http://{}/v1/chat/completions\r\n", other.address);
        let redirect = Reply::Bytes(http(status, &location, b""));
        ends(status, redirect, FailCode::ProviderRejected, 1).await?;
    }
    ensure!(other.asked.load(Ordering::SeqCst) == 0, "a redirect was followed");
    Ok(())
}

/// A window of one source.
struct Window;

#[async_trait]
impl ProcessorHost for Window {
    async fn load(&self, _: Load) -> Result<Loaded, HostError> {
        let content: Value = json!({"content": "The sky is blue."});
        let source_id = SourceId::parse("1").map_err(|_| HostError::Unavailable)?;
        Ok(Loaded {
            cursor: Cursor::START,
            journal_head: Position::new(1),
            sources: vec![LoadedSource {
                position: Position::new(1),
                source: SourceRef {
                    name: SourceType::content(),
                    source_id,
                },
                usage: SourceUse::Evidence,
                content,
            }],
            memory: None,
        })
    }

    async fn search(&self, _: Search) -> Result<Vec<SearchHit>, HostError> {
        Err(HostError::Unavailable)
    }

    async fn reserve(&self, _: Reserve) -> Result<Reserved, HostError> {
        Ok(Reserved::Granted)
    }

    async fn commit_window(&self, _: DomainWrite) -> Result<Committed, HostError> {
        Err(HostError::Unavailable)
    }
}
