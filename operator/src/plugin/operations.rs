//! `operations`: what the API offers under `/v1/operations`, asked of an API pod through the API server.
//!
//! The connection is a forwarded port, because the API server's own HTTP proxy drops the `Authorization` that the API wants
//! ([ADR 0021]). Requests and answers are read here without a network; `forward` carries them.
//!
//! [ADR 0021]: ../../../docs/adr/0021-operations-through-a-port.md

mod forward;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use k8s_openapi::jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use self::forward::Api;
use super::DONE;
use super::args::{ActArguments, Format, ListArguments, OperationsArguments, OperationsCommand};
use super::cluster::Cluster;
use super::fault::PluginError;
use super::print::{age, document, show, table};
use crate::rt;

/// Operations on a page of the API.
const PAGE_MAX: u32 = 100;
/// Most operations that are retried by an error code at once.
const BULK_MAX: u32 = 10_000;

/// What is done to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Cancel,
    Retry,
}

impl Act {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        }
    }
}

/// One question to the API.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    Page {
        filter: Vec<(&'static str, String)>,
        cursor: Option<String>,
        limit: u32,
    },
    One(String),
    Act {
        act: Act,
        id: String,
        version: i64,
    },
}

/// Does what was asked.
pub(super) async fn run(cluster: &Cluster, arguments: OperationsArguments) -> Result<u8, PluginError> {
    let resource = cluster.find(arguments.deployment.as_deref()).await?;
    let mut api = Api::open(cluster, &resource).await?;
    match arguments.command {
        OperationsCommand::List(list) => {
            let items = page_by_page(&mut api, &filter(&list), list.limit).await?;
            print(&items, arguments.output)?;
        }
        OperationsCommand::Cancel(act) => each(&mut api, Act::Cancel, act, arguments.output).await?,
        OperationsCommand::Retry(act) => each(&mut api, Act::Retry, act, arguments.output).await?,
    }
    Ok(DONE)
}

/// Acts on one operation after the other; the first that refuses ends it.
async fn each(api: &mut Api, act: Act, arguments: ActArguments, output: Format) -> Result<(), PluginError> {
    let ids = match &arguments.error_code {
        None => arguments.ids,
        Some(code) => {
            let failed = ListArguments {
                status: Some("failed".to_owned()),
                ..ListArguments::default()
            };
            let failed = page_by_page(api, &filter(&failed), BULK_MAX).await?;
            with_code(&failed, code)
        }
    };
    if ids.is_empty() {
        show("no operation has failed with that code\n");
        return Ok(());
    }
    let mut ended = Vec::new();
    for id in ids {
        let now = api.ask(&Question::One(id.clone())).await?;
        let version = now["state_version"].as_i64().unwrap_or_default();
        let question = Question::Act { act, id, version };
        let after = api.ask(&question).await;
        match after {
            Ok(after) => ended.push(after),
            Err(error) => {
                // What was done before is told also where the next is refused.
                if !ended.is_empty() {
                    print(&ended, output)?;
                }
                return Err(error);
            }
        }
    }
    print(&ended, output)
}

async fn page_by_page(api: &mut Api, filter: &[(&'static str, String)], most: u32) -> Result<Vec<Value>, PluginError> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut items: Vec<Value> = Vec::new();
    let mut cursor = None;
    loop {
        let left = u32::try_from(most - items.len()).unwrap_or(PAGE_MAX);
        let page = api
            .ask(&Question::Page {
                filter: filter.to_vec(),
                cursor,
                limit: left.min(PAGE_MAX),
            })
            .await?;
        items.extend(page["items"].as_array().into_iter().flatten().cloned());
        items.truncate(most);
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || items.len() == most {
            return Ok(items);
        }
    }
}

fn filter(list: &ListArguments) -> Vec<(&'static str, String)> {
    [
        ("scope_id", &list.scope),
        ("kind", &list.kind),
        ("status", &list.status),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value.clone()?)))
    .collect()
}

/// Ids of the operations that failed so.
fn with_code(items: &[Value], code: &str) -> Vec<String> {
    let so = items.iter().filter(|item| item["error"]["code"] == code);
    so.filter_map(|item| item["operation_id"].as_str().map(str::to_owned))
        .collect()
}

/// The request of a question.
fn request(question: &Question, token: Option<&SecretString>) -> Result<Request<Full<Bytes>>, PluginError> {
    let (method, target, body) = match question {
        Question::Page { filter, cursor, limit } => {
            let mut pairs: Vec<String> = filter
                .iter()
                .map(|(name, value)| format!("{name}={}", encoded(value)))
                .collect();
            pairs.extend(cursor.iter().map(|cursor| format!("cursor={}", encoded(cursor))));
            pairs.push(format!("limit={limit}"));
            (Method::GET, format!("/v1/operations?{}", pairs.join("&")), None)
        }
        Question::One(id) => (Method::GET, format!("/v1/operations/{}", encoded(id)), None),
        Question::Act { act, id, version } => (
            Method::POST,
            format!("/v1/operations/{}/{}", encoded(id), act.as_str()),
            Some(json!({ "expected_version": version }).to_string()),
        ),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(http::header::HOST, "powercontext")
        .header(http::header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        let bearer = format!("Bearer {}", token.expose_secret());
        let bearer = http::HeaderValue::try_from(bearer);
        let mut bearer =
            bearer.map_err(|_| PluginError::Api("the token in the secret is no text of a header".to_owned()))?;
        bearer.set_sensitive(true);
        request = request.header(http::header::AUTHORIZATION, bearer);
    }
    let body = body.map(Bytes::from).unwrap_or_default();
    request
        .body(Full::new(body))
        .map_err(|error| PluginError::Api(format!("no request: {error}")))
}

/// A text as a part of a URL.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _ = std::fmt::Write::write_fmt(&mut encoded, format_args!("%{byte:02X}"));
        }
        encoded
    })
}

/// What an answer says.
fn answer(question: &Question, status: StatusCode, body: &[u8]) -> Result<Value, PluginError> {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    let told = value["error"]["message"].as_str().unwrap_or("it gave no reason");
    let details = &value["error"]["details"];
    let id = match question {
        Question::One(id) | Question::Act { id, .. } => id.as_str(),
        Question::Page { .. } => "",
    };
    Err(match (status, question) {
        (StatusCode::UNAUTHORIZED, _) => PluginError::Api(
            "the API refuses the token of spec.auth.tokenSecretRef (401); were its pods started before the secret changed?".to_owned(),
        ),
        (StatusCode::NOT_FOUND, Question::One(_) | Question::Act { .. }) => {
            PluginError::Missing(format!("there is no operation {id}"))
        }
        (StatusCode::CONFLICT, Question::Act { act, .. }) => {
            let now = details["status"].as_str().unwrap_or("another state");
            PluginError::Impossible(format!(
                "operation {id} was not changed: it is {now}, in which `{}` means nothing, or somebody was faster; look at it again",
                act.as_str()
            ))
        }
        (StatusCode::UNPROCESSABLE_ENTITY, _) => PluginError::Api(format!("the API does not accept that (422): {told} {details}")),
        (status, _) => PluginError::Api(format!("the API answered {}: {told}", status.as_u16())),
    })
}

fn print(items: &[Value], output: Format) -> Result<(), PluginError> {
    let text = document(&json!({ "items": items }), output)?;
    show(&text.unwrap_or_else(|| rows(items, rt::time_of_day())));
    Ok(())
}

/// Operations for people.
fn rows(items: &[Value], now: Timestamp) -> String {
    if items.is_empty() {
        return "no operation\n".to_owned();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| {
            let created: Timestamp = text(&item["created_at"]).parse().unwrap_or(now);
            let error = &item["error"];
            let error = if error.is_object() {
                format!("{}/{}", text(&error["category"]), text(&error["code"]))
            } else {
                String::new()
            };
            vec![
                text(&item["operation_id"]),
                text(&item["kind"]),
                text(&item["status"]),
                item["attempt_count"].to_string(),
                age(now.as_second() - created.as_second()),
                text(&item["scope_id"]),
                error,
            ]
        })
        .collect();
    table(&["ID", "KIND", "STATUS", "ATTEMPTS", "AGE", "SCOPE", "ERROR"], &rows)
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
