//! An API server of a map, for tests: it stores objects, counts versions, refuses stale writes, and writes down what it was
//! asked. It knows no schema and no controller; what a real one would add is shown by tests against a real one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::testing::merge;

/// The server.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    away: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    requests: Vec<String>,
    version: u64,
    refused: Option<(String, u16)>,
    watchers: Vec<(String, UnboundedSender<Bytes>)>,
}

/// A body that may go on for as long as the server lives.
type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn whole(value: &Value) -> Answer {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

impl FakeApi {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let method = request.method().clone();
                let path = request.uri().path().to_owned();
                let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let kind = request.headers().get("content-type").cloned();
                let bytes = request
                    .into_body()
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes)
                    .unwrap_or_default();
                if fake.away.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if watches {
                    return Ok(Response::new(fake.lock().watch(&path)));
                }
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let is_merge = kind.is_some_and(|kind| kind == "application/merge-patch+json");
                let (status, answer) = fake.lock().answer(&method, &path, body, is_merge);
                let mut response = Response::new(whole(&answer));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        });
        Client::new(service, "default")
    }

    /// From now on no request is answered.
    pub(crate) fn go_away(&self) {
        self.away.store(true, Ordering::Relaxed);
    }

    /// From now on requests about paths that contain the text are refused with the code.
    pub(crate) fn refuse(&self, part: &str, code: u16) {
        self.lock().refused = Some((part.to_owned(), code));
    }

    /// Refuses nothing any more.
    pub(crate) fn accept(&self) {
        self.lock().refused = None;
    }

    /// Stores an object.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.lock().store(path, object);
    }

    /// Changes a stored object.
    pub(crate) fn change(&self, path: &str, with: &Value) {
        let mut state = self.lock();
        let mut object = state.objects.get(path).cloned().unwrap_or_default();
        merge(&mut object, with);
        state.store(path, object);
    }

    /// Removes an object.
    pub(crate) fn remove(&self, path: &str) {
        let mut state = self.lock();
        if let Some(gone) = state.objects.remove(path) {
            state.tell(path, "DELETED", &gone);
        }
    }

    /// A stored object.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// Every stored object whose path contains the text.
    pub(crate) fn list(&self, part: &str) -> Vec<Value> {
        let state = self.lock();
        let found = state.objects.iter().filter(|(path, _)| path.contains(part));
        found.map(|(_, object)| object.clone()).collect()
    }

    /// What it was asked since the last time, writes only.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.lock().requests);
        requests.into_iter().filter(|line| !line.starts_with("GET")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panicked")
    }
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-of-{}", self.version).into();
        }
        if object["metadata"]["generation"].is_null() {
            object["metadata"]["generation"] = 1.into();
        }
        self.objects.insert(path.to_owned(), object.clone());
        self.tell(path, "MODIFIED", &object);
        object
    }

    /// Tells those who watch the collection of an object.
    fn tell(&mut self, path: &str, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })));
        self.watchers
            .retain(|(collection, watcher)| !is_in(path, collection) || watcher.send(line.clone()).is_ok());
    }

    /// A watch of a collection. It begins with everything there is, so that nothing is lost since the list.
    fn watch(&mut self, collection: &str) -> Answer {
        let (sender, receiver) = unbounded_channel();
        for (path, object) in &self.objects {
            if is_in(path, collection) {
                let line = format!("{}\n", json!({ "type": "MODIFIED", "object": object }));
                // The receiver is still here.
                let _ = sender.send(Bytes::from(line));
            }
        }
        self.watchers.push((collection.to_owned(), sender));
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let line = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), receiver))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    fn list(&self, collection: &str) -> Value {
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|(path, _)| is_in(path, collection))
            .map(|(_, one)| one)
            .collect();
        json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": self.version.to_string() }, "items": items })
    }

    fn answer(&mut self, method: &Method, path: &str, body: Value, is_merge: bool) -> (StatusCode, Value) {
        self.requests.push(format!("{method} {path}"));
        if let Some((part, code)) = &self.refused
            && path.contains(part.as_str())
            && method != Method::GET
        {
            return refusal(*code, "Refused");
        }
        let object = path.trim_end_matches("/status");
        match *method {
            Method::GET => match self.objects.get(object) {
                Some(found) => (StatusCode::OK, found.clone()),
                None if COLLECTIONS.iter().any(|plural| object.ends_with(plural)) => {
                    (StatusCode::OK, self.list(object))
                }
                None => refusal(404, "NotFound"),
            },
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                if self.objects.contains_key(&path) {
                    return refusal(409, "AlreadyExists");
                }
                (StatusCode::CREATED, self.store(&path, body))
            }
            Method::PUT => {
                let Some(live) = self.objects.get(object).cloned() else {
                    return refusal(404, "NotFound");
                };
                if live["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return refusal(409, "Conflict");
                }
                let mut new = if path == object { body.clone() } else { live };
                if path != object {
                    new["status"] = body["status"].clone();
                }
                (StatusCode::OK, self.store(object, new))
            }
            Method::PATCH => {
                let live = self.objects.get(object).cloned();
                if live.is_none() && is_merge {
                    return refusal(404, "NotFound");
                }
                let mut new = live.unwrap_or_else(|| json!({}));
                if !is_merge && new["spec"] != body["spec"] {
                    let generation = new["metadata"]["generation"].as_i64().unwrap_or_default();
                    new["metadata"]["generation"] = (generation + 1).into();
                }
                merge(&mut new, &body);
                if !is_merge {
                    new["spec"] = body["spec"].clone();
                }
                (StatusCode::OK, self.store(object, new))
            }
            Method::DELETE => match self.objects.remove(object) {
                Some(gone) => {
                    self.tell(object, "DELETED", &gone);
                    (StatusCode::OK, status(200, "Success"))
                }
                None => refusal(404, "NotFound"),
            },
            _ => refusal(405, "MethodNotAllowed"),
        }
    }
}

/// Ends of the paths that name a collection.
const COLLECTIONS: [&str; 11] = [
    "/serviceaccounts",
    "/services",
    "/deployments",
    "/jobs",
    "/poddisruptionbudgets",
    "/networkpolicies",
    "/horizontalpodautoscalers",
    "/ingresses",
    "/podmonitors",
    "/pods",
    "/powercontextdeployments",
];

fn is_in(path: &str, collection: &str) -> bool {
    let name = path.strip_prefix(collection).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| !name.contains('/'))
}

fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": if code < 300 { "Success" } else { "Failure" },
        "message": "canary-5b1c: a text that quotes what was sent", "reason": reason, "code": code })
}

fn refusal(code: u16, reason: &str) -> (StatusCode, Value) {
    let status_code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status_code, status(code, reason))
}
