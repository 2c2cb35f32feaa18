//! What an operator asked of the API server, from the API server's own audit log.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// A request that was answered.
#[derive(Debug, Clone)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// Plural of the kind, with the subresource: `powercontextdeployments/status`.
    pub resource: String,
    /// API group; empty for the core.
    pub group: String,
    /// Name of the object, where one is named.
    pub name: String,
    /// HTTP status of the answer.
    pub code: i64,
    /// When the request came.
    pub received: Timestamp,
}

impl Request {
    /// Whether it changed something. Renewals of the operator's own lease are none of a deployment.
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str()) && self.resource != "leases" && self.code < 300
    }
}

/// The requests of one user from some moment on.
#[derive(Debug, Clone)]
pub struct Audit {
    log: PathBuf,
    user: String,
    from: u64,
}

impl Audit {
    /// The requests of a user that come from now on.
    pub fn new(log: PathBuf, user: String) -> Self {
        let from = std::fs::metadata(&log).map_or(0, |meta| meta.len());
        Self { log, user, from }
    }

    /// The same user from now on.
    #[must_use]
    pub fn from_now(&self) -> Self {
        Self::new(self.log.clone(), self.user.clone())
    }

    /// Every request so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut requests = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line?;
            if !line.contains(&self.user) {
                continue;
            }
            // The last line may be half written.
            let Ok(event) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if event["user"]["username"] == self.user.as_str() {
                requests.extend(request(&event));
            }
        }
        Ok(requests)
    }

    /// Every request so far that changed something.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn writes(&self) -> anyhow::Result<Vec<Request>> {
        let requests = self.requests()?;
        Ok(requests.into_iter().filter(Request::is_write).collect())
    }
}

fn request(event: &Value) -> Option<Request> {
    let object = &event["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = match object["subresource"].as_str() {
        Some(sub) => format!("{}/{sub}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    Some(Request {
        verb: text(&event["verb"]),
        resource,
        group: text(&object["apiGroup"]),
        name: text(&object["name"]),
        code: event["responseStatus"]["code"].as_i64().unwrap_or_default(),
        received: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
    })
}
