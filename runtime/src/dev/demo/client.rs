//! The few routes that the demonstration calls, like any client would.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{DemoError, Turn};
use crate::rt;

/// Longest single request.
const REQUEST_MAX: Duration = Duration::from_secs(35);

/// What a flush did.
#[derive(Debug, Deserialize)]
pub(super) struct Flushed {
    pub(super) status: String,
    pub(super) previous_cursor: u64,
    pub(super) current_cursor: u64,
    pub(super) high_watermark: u64,
}

/// An operation, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    #[serde(rename = "operation_id")]
    pub(super) id: String,
    pub(super) scope_id: String,
    pub(super) status: String,
    pub(super) attempt_count: u32,
    pub(super) result: Option<Value>,
}

/// An entry, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) source_refs: Vec<Source>,
}

/// A cited source.
#[derive(Debug, Deserialize)]
pub(super) struct Source {
    pub(super) source_id: String,
}

/// A hit of a search.
#[derive(Debug, Deserialize)]
pub(super) struct Hit {
    pub(super) text: String,
    pub(super) score: f64,
}

/// A client of the demonstration's server.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Result<Self, DemoError> {
        let http = reqwest::Client::builder().timeout(REQUEST_MAX).no_proxy().build();
        let http = http.map_err(|error| DemoError::Server(format!("no HTTP client: {error}")))?;
        Ok(Self {
            http,
            base: format!("http://{address}"),
        })
    }

    pub(super) async fn wait_until_ready(&self, within: Duration) -> Result<(), DemoError> {
        let until = rt::now() + within;
        loop {
            let answer = self.http.get(format!("{}/health/ready", self.base)).send().await;
            if answer.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                return Ok(());
            }
            if rt::now() >= until {
                return Err(DemoError::Server(format!(
                    "the server did not get ready within {} s",
                    within.as_secs()
                )));
            }
            rt::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn capture(&self, turn: &Turn) -> Result<(), DemoError> {
        let mut body = json!({"scope_id": turn.scope_id, "source_id": turn.source_id, "content": turn.content});
        if let Some(metadata) = &turn.metadata {
            body["metadata"] = Value::Object(metadata.clone());
        }
        self.post::<Value>("/v1/sources/content", &body, StatusCode::ACCEPTED)
            .await
            .map(|_| ())
    }

    pub(super) async fn flush(&self, scope: &str) -> Result<Flushed, DemoError> {
        self.post("/v1/memory/flush", &json!({"scope_id": scope}), StatusCode::OK)
            .await
    }

    pub(super) async fn operations(&self) -> Result<Vec<Operation>, DemoError> {
        #[derive(Deserialize)]
        struct Page {
            items: Vec<Operation>,
        }
        let request = self.http.get(format!("{}/v1/operations", self.base));
        let mut page: Page = self.answered(request, StatusCode::OK).await?;
        page.items.reverse();
        Ok(page.items)
    }

    pub(super) async fn entries(&self, scope: &str) -> Result<Vec<Entry>, DemoError> {
        #[derive(Deserialize)]
        struct Entries {
            entries: Vec<Entry>,
        }
        let entries: Entries = self
            .post("/v1/memory/entries/list", &json!({"scope_id": scope}), StatusCode::OK)
            .await?;
        Ok(entries.entries)
    }

    pub(super) async fn search(&self, scope: &str, query: &str, limit: u32) -> Result<Vec<Hit>, DemoError> {
        #[derive(Deserialize)]
        struct Found {
            hits: Vec<Hit>,
        }
        let body = json!({"scope_id": scope, "query": query, "limit": limit});
        let found: Found = self.post("/v1/memory/search", &body, StatusCode::OK).await?;
        Ok(found.hits)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value, expected: StatusCode) -> Result<T, DemoError> {
        self.answered(self.http.post(format!("{}{path}", self.base)).json(body), expected)
            .await
    }

    async fn answered<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        expected: StatusCode,
    ) -> Result<T, DemoError> {
        let failed = |what: String| DemoError::Server(format!("the server did not answer as it must: {what}"));
        let answer = request.send().await.map_err(|error| failed(error.to_string()))?;
        let (status, path) = (answer.status(), answer.url().path().to_owned());
        if status != expected {
            return Err(failed(format!("{path} answered {status}")));
        }
        answer
            .json()
            .await
            .map_err(|_| failed(format!("{path} answered another form")))
    }
}
