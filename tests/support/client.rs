//! An HTTP client of the routes that the process suites call. It asserts nothing: an [`Answer`] says what came back.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::wait::until;

/// Longest single request.
const REQUEST_MAX: Duration = Duration::from_secs(40);

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body; null where it is no JSON.
    pub body: Value,
    /// The body as it came.
    pub text: String,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<String>,
}

impl Answer {
    /// The answer, if it has this status.
    ///
    /// # Errors
    /// When it has another.
    pub fn expect(self, status: u16) -> anyhow::Result<Self> {
        ensure!(self.status == status, "{status} was expected: {self:?}");
        Ok(self)
    }

    /// The error's code; empty when the answer is none.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The operation that the answer names, as an accepted one or in an error's details.
    ///
    /// # Errors
    /// When it names none.
    pub fn operation_id(&self) -> anyhow::Result<String> {
        let details = &self.body["error"]["details"]["operation_id"];
        let id = self.body["operation_id"].as_str().or(details.as_str());
        Ok(id.with_context(|| format!("no operation in {self:?}"))?.to_owned())
    }
}

/// A client of one server; cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    /// A client of the server at this address.
    ///
    /// # Errors
    /// When the machine gives no client.
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self {
            http: reqwest::Client::builder().timeout(REQUEST_MAX).no_proxy().build()?,
            base: format!("http://{address}"),
        })
    }

    /// The same client, bearing a token.
    ///
    /// # Errors
    /// When HTTP cannot carry the token.
    pub fn bearing(self, token: &str) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
        let http = reqwest::Client::builder().timeout(REQUEST_MAX).no_proxy();
        Ok(Self {
            http: http.default_headers(headers).build()?,
            ..self
        })
    }

    /// The same client, bearing a token, with a new connection for each request: what a balancer spreads.
    ///
    /// # Errors
    /// When HTTP cannot carry the token.
    pub fn reconnecting(self, token: &str) -> anyhow::Result<Self> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?)]);
        let http = reqwest::Client::builder().timeout(REQUEST_MAX).no_proxy();
        let http = http.pool_max_idle_per_host(0).default_headers(headers);
        Ok(Self {
            http: http.build()?,
            ..self
        })
    }

    /// Sends a GET.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        answered(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Sends a POST of these bytes.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post_bytes(
        &self,
        path: &str,
        media_type: &str,
        body: impl Into<reqwest::Body>,
    ) -> anyhow::Result<Answer> {
        let request = self
            .http
            .post(format!("{}{path}", self.base))
            .header("content-type", media_type);
        answered(request.body(body)).await
    }

    /// Sends a POST.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        answered(self.http.post(format!("{}{path}", self.base)).json(body)).await
    }

    /// Readiness.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ready(&self) -> anyhow::Result<Answer> {
        self.get("/health/ready").await
    }

    /// Captures a source.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn capture(&self, scope: &str, source: &str, content: &str) -> anyhow::Result<Answer> {
        let body = json!({"scope_id": scope, "source_id": source, "content": content});
        self.post("/v1/sources/content", &body).await
    }

    /// Flushes with this `Prefer`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn flush(&self, scope: &str, prefer: &str) -> anyhow::Result<Answer> {
        let request = self.http.post(format!("{}/v1/memory/flush", self.base));
        answered(request.header("prefer", prefer).json(&json!({"scope_id": scope}))).await
    }

    /// One operation.
    ///
    /// # Errors
    /// When there is no answer, or no such operation.
    pub async fn operation(&self, id: &str) -> anyhow::Result<Value> {
        Ok(self.get(&format!("/v1/operations/{id}")).await?.expect(200)?.body)
    }

    /// The operations of a scope, newest first.
    ///
    /// # Errors
    /// When the server does not answer with them.
    pub async fn operations(&self, scope: &str) -> anyhow::Result<Vec<Value>> {
        let page = self
            .get(&format!("/v1/operations?scope_id={}", encoded(scope)))
            .await?
            .expect(200)?;
        Ok(page.body["items"].as_array().context("no items")?.clone())
    }

    /// Waits until an operation is in this state.
    ///
    /// # Errors
    /// When it is not in time, with its last state.
    pub async fn operation_is(&self, id: &str, status: &str, within: Duration) -> anyhow::Result<Value> {
        let what = format!("operation {id} is {status}");
        until(&what, within, async || {
            let operation = self.operation(id).await?;
            ensure!(operation["status"] == status, "it is {operation}");
            Ok(Some(operation))
        })
        .await
    }

    /// Revives or cancels an operation (`retry`, `cancel`) in the version that it has now.
    ///
    /// # Errors
    /// When there is no answer, or no such operation.
    pub async fn act(&self, id: &str, act: &str) -> anyhow::Result<Answer> {
        let version = self.operation(id).await?["state_version"].clone();
        self.post(
            &format!("/v1/operations/{id}/{act}"),
            &json!({"expected_version": version}),
        )
        .await
    }

    /// The active entries of a scope's Memory, with the Memory itself.
    ///
    /// # Errors
    /// When the server does not answer with them.
    pub async fn entries(&self, scope: &str) -> anyhow::Result<Value> {
        let body = json!({"scope_id": scope});
        Ok(self.post("/v1/memory/entries/list", &body).await?.expect(200)?.body)
    }
}

/// A text as a value in a query.
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        write!(encoded, "%{byte:02X}").expect("a String takes everything");
        encoded
    })
}

async fn answered(request: reqwest::RequestBuilder) -> anyhow::Result<Answer> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let retry_after = answer
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(str::to_owned);
    let text = answer.text().await?;
    let body = serde_json::from_str(&text).unwrap_or_default();
    Ok(Answer {
        status,
        body,
        text,
        retry_after,
    })
}
