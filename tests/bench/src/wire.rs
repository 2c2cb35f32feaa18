//! A client of one kept connection that costs the machine little, so that what is measured is the server.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    host: SocketAddr,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body, if the answer has this status.
    pub(crate) fn json(&self, status: u16) -> anyhow::Result<Value> {
        ensure!(
            self.status == status,
            "{status} was expected, not {}: {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        Ok(serde_json::from_slice(&self.body)?)
    }
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(host: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            host,
        })
    }

    /// Sends a GET.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.ask(request.as_bytes()).await
    }

    /// Sends a POST of JSON.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.post_with(path, body, "").await
    }

    /// The same with a preference.
    pub(crate) async fn post_preferring(&mut self, path: &str, body: &Value, prefer: &str) -> anyhow::Result<Answer> {
        self.post_with(path, body, &format!("prefer: {prefer}\r\n")).await
    }

    async fn post_with(&mut self, path: &str, body: &Value, header: &str) -> anyhow::Result<Answer> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{header}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.ask(request.as_bytes()).await
    }

    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            self.read().await?;
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = std::str::from_utf8(&self.buffer[..head])?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .context("no status")?
            .parse()?;
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = length.context("an answer without a length")?.1.trim().parse()?;
        while self.buffer.len() < head + length {
            self.read().await?;
        }
        let body = self.buffer[head..head + length].to_vec();
        Ok(Answer { status, body })
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        ensure!(self.buffer.len() <= ANSWER_BYTES_MAX, "an answer without end");
        Ok(())
    }
}
