//! A small application in memory and a real server on a loopback port, for the tests of this module.
//!
//! The application does what the contract says as far as the wire can see; how work really runs is tested elsewhere,
//! over the ledger.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::ids::{ScopeId, SourceType, WorkId};
use powercontext_core::memory::MemoryCitation;
use powercontext_core::rate::{Decision, Quota};
use powercontext_core::refs::{Position, SourceRef};
use powercontext_core::time::DbTime;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::access::Guard;
use super::app::{
    App, AppError, Capabilities, Captured, ChangesView, Check, CheckState, EntriesView, EntryRetirement, EntryRevision,
    EntryView, FlushStart, MutationView, NewEntry, NewSource, OperationFilter, OperationPage, OperationView, Principal,
    Search, SearchMode, SearchView, Waited,
};
use super::limits::ServerLimits;
use super::prefer::WaitLimits;
use super::router;
use super::server::{Drained, serve};
use super::state::Api;
use crate::rt;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::Parent;

/// Longest wait of a test for anything.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// What the application answers next, and what it was asked.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) fails_with: Option<AppError>,
    pub(crate) panics: bool,
    pub(crate) flush: Option<FlushStart>,
    pub(crate) waited: Option<Waited>,
    pub(crate) operations: Vec<OperationView>,
    pub(crate) entries: Vec<EntryView>,
    pub(crate) hits: Option<SearchView>,
    pub(crate) changes: Option<ChangesView>,
    pub(crate) checks: Vec<Check>,
    pub(crate) counted: u64,
    pub(crate) limiter_fails_with: Option<AppError>,
    pub(crate) calls: Vec<String>,
}

/// The application.
#[derive(Default)]
pub(crate) struct ScriptedApp(Mutex<Script>);

impl ScriptedApp {
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn called(&self, call: String) -> Result<MutexGuard<'_, Script>, AppError> {
        let mut script = self.script();
        script.calls.push(call);
        assert!(!script.panics, "secret-panic-text");
        match &script.fails_with {
            Some(error) => Err(error.clone()),
            None => Ok(script),
        }
    }

    fn find(script: &Script, id: WorkId) -> Result<OperationView, AppError> {
        let found = script.operations.iter().find(|operation| operation.id == id);
        found.cloned().ok_or(AppError::OperationNotFound)
    }

    fn mutation(script: &Script) -> MutationView {
        let entry = script.entries.first().cloned().expect("an entry is scripted");
        MutationView {
            memory: powercontext_core::memory::citation::memory_ref(entry.revision),
            entry: Some(entry),
        }
    }
}

#[async_trait]
impl App for ScriptedApp {
    async fn count_request(&self, _by: Principal, quota: Quota) -> Result<Decision, AppError> {
        let mut script = self.script();
        if let Some(error) = &script.limiter_fails_with {
            return Err(error.clone());
        }
        let now = DbTime::from_micros(1);
        let decision = quota.decide(script.counted, quota.window_at(now), now);
        script.counted += u64::from(decision == Decision::Allowed);
        Ok(decision)
    }

    async fn capture(&self, _by: Principal, source: NewSource) -> Result<Captured, AppError> {
        let mut script = self.called(format!("capture {source:?}"))?;
        script
            .calls
            .push(format!("content {} chars", source.content.chars().count()));
        Ok(Captured {
            source: SourceRef {
                name: SourceType::content(),
                source_id: source.source_id,
            },
            position: Position::new(1),
        })
    }

    async fn flush_begin(
        &self,
        by: Principal,
        scope_id: &ScopeId,
        _parent: Option<Parent>,
    ) -> Result<FlushStart, AppError> {
        let script = self.called(format!("flush {scope_id} by {}", by.kind()))?;
        Ok(script.flush.clone().expect("a flush is scripted"))
    }

    async fn wait_operation(&self, id: WorkId, budget: Duration) -> Result<Waited, AppError> {
        let waited = self.called(format!("wait {}s", budget.as_secs()))?.waited.clone();
        if let Some(waited) = waited {
            return Ok(waited);
        }
        rt::sleep(budget).await;
        Self::find(&self.script(), id).map(Waited::Pending)
    }

    async fn operation(&self, id: WorkId) -> Result<OperationView, AppError> {
        Self::find(&*self.called(format!("operation {id}"))?, id)
    }

    async fn list_operations(
        &self,
        filter: OperationFilter,
        page: OperationPage,
    ) -> Result<Vec<OperationView>, AppError> {
        let script = self.called(format!("list {filter:?} {page:?}"))?;
        let key = |operation: &OperationView| (operation.created_at, operation.id);
        let mut operations = script.operations.clone();
        operations.sort_by_key(|operation| std::cmp::Reverse(key(operation)));
        Ok(operations
            .into_iter()
            .filter(|operation| {
                page.after
                    .is_none_or(|after| key(operation) < (after.created_at, after.id))
            })
            .filter(|operation| filter.status.is_none_or(|status| operation.status == status))
            .take(usize::try_from(page.limit).expect("a small limit"))
            .collect())
    }

    async fn cancel(&self, _by: Principal, id: WorkId, expected_version: u64) -> Result<OperationView, AppError> {
        Self::find(&*self.called(format!("cancel {id} {expected_version}"))?, id)
    }

    async fn retry(&self, _by: Principal, id: WorkId, expected_version: u64) -> Result<OperationView, AppError> {
        Self::find(&*self.called(format!("retry {id} {expected_version}"))?, id)
    }

    async fn remember(&self, _by: Principal, entry: NewEntry) -> Result<MutationView, AppError> {
        Ok(Self::mutation(&*self.called(format!("remember {entry:?}"))?))
    }

    async fn search(&self, search: Search) -> Result<SearchView, AppError> {
        let script = self.called(format!("search {search:?}"))?;
        Ok(script.hits.clone().unwrap_or(SearchView {
            memory: None,
            mode: None,
            hits: Vec::new(),
        }))
    }

    async fn list_entries(&self, scope_id: &ScopeId, include_inactive: bool) -> Result<EntriesView, AppError> {
        let script = self.called(format!("entries {scope_id} {include_inactive}"))?;
        Ok(EntriesView {
            memory: None,
            entries: script.entries.clone(),
        })
    }

    async fn get_entry(&self, scope_id: &ScopeId, citation: &MemoryCitation) -> Result<EntryView, AppError> {
        let script = self.called(format!("entry {scope_id} {}", citation.memory_ref.revision.get()))?;
        script.entries.first().cloned().ok_or(AppError::MemoryNotFound)
    }

    async fn revise(&self, _by: Principal, revision: EntryRevision) -> Result<MutationView, AppError> {
        Ok(Self::mutation(&*self.called(format!("revise {revision:?}"))?))
    }

    async fn retire(&self, _by: Principal, retirement: EntryRetirement) -> Result<MutationView, AppError> {
        Ok(Self::mutation(&*self.called(format!("retire {retirement:?}"))?))
    }

    async fn changes(&self, scope_id: &ScopeId, since: Option<u64>) -> Result<ChangesView, AppError> {
        let script = self.called(format!("changes {scope_id} {since:?}"))?;
        Ok(script.changes.clone().unwrap_or(ChangesView {
            memory: None,
            revisions: Vec::new(),
        }))
    }

    async fn readiness(&self) -> Vec<Check> {
        let script = self.script();
        assert!(!script.panics, "secret-panic-text");
        let check = |name| Check {
            name,
            state: CheckState::Ready,
            blocking: true,
        };
        [&[check("runtime"), check("database")], &script.checks[..]].concat()
    }

    async fn capabilities(&self) -> Result<Capabilities, AppError> {
        drop(self.called("capabilities".to_owned())?);
        Ok(Capabilities {
            source_types: vec!["content"],
            artifact_families: vec!["memory"],
            memory_extraction: true,
            experience_generation: false,
            managed_skill_generation: false,
            external_skill_registry: false,
            handoff_generation: false,
            search_modes: vec![SearchMode::Auto, SearchMode::Fts],
        })
    }
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) app: Arc<ScriptedApp>,
    pub(crate) api: Api,
    pub(crate) draining: CancellationToken,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<Drained>,
}

/// Limits with spans short enough for a test and long enough for a busy machine.
pub(crate) fn patient() -> ServerLimits {
    ServerLimits {
        linger: Duration::from_millis(500),
        ..ServerLimits::default()
    }
}

impl TestServer {
    pub(crate) async fn start(limits: ServerLimits) -> Self {
        Self::guarded(limits, Guard::open()).await
    }

    pub(crate) async fn guarded(limits: ServerLimits, guard: Guard) -> Self {
        let draining = CancellationToken::new();
        let metrics = Metrics::new([]);
        let counter = prometheus::IntCounter::new("powercontext_test_total", "A counter.").expect("a valid name");
        metrics
            .registry()
            .register(Box::new(counter))
            .expect("the first of its name");
        let api = Api::new(guard, WaitLimits::default(), Some(metrics), draining.clone());
        let app = Arc::new(ScriptedApp::default());
        api.bind(app.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shutdown = CancellationToken::new();
        let served = rt::spawn(serve(
            listener,
            router::full(api.clone()),
            limits,
            draining.clone(),
            shutdown.clone(),
        ));
        Self {
            address,
            app,
            api,
            draining,
            shutdown,
            served,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.expect("listening"))
    }

    /// Waits until the application is asked to wait for an operation: that request is in progress.
    pub(crate) async fn waits(&self) {
        let asked = async {
            while !self.calls().iter().any(|call| call.starts_with("wait")) {
                rt::sleep(Duration::from_millis(2)).await;
            }
        };
        rt::within(DEADLINE, asked).await.expect("the request is in progress");
    }

    /// How it ended.
    pub(crate) async fn ended(self) -> Drained {
        rt::within(DEADLINE, self.served)
            .await
            .expect("in time")
            .expect("no panic")
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: &str) -> Reply {
        let mut client = self.connect().await;
        client.write(request.as_bytes()).await;
        client.reply().await
    }

    pub(crate) async fn get(&self, target: &str) -> Reply {
        self.send(&format!("GET {target} HTTP/1.1\r\nhost: t\r\n\r\n")).await
    }

    pub(crate) async fn post(&self, target: &str, body: &Value) -> Reply {
        self.send(&post(target, "", &body.to_string())).await
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.app.script().calls.clone()
    }
}

/// A POST with a JSON body.
pub(crate) fn post(target: &str, fields: &str, body: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A client that sends exactly what it is told.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    /// Sends bytes; a server that has stopped reading is no fault of the test.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Reads one answer.
    pub(crate) async fn reply(&mut self) -> Reply {
        let read = rt::within(DEADLINE, Reply::read(&mut self.0)).await;
        read.expect("an answer in time").expect("an answer")
    }

    /// Whether the server closes without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let read = rt::within(DEADLINE, self.0.read(&mut byte)).await;
        matches!(read.expect("closed in time"), Ok(0) | Err(_))
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    async fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).ok()?;
        let mut reply = Self {
            status: head.get(9..12)?.parse().ok()?,
            head,
            body: Vec::new(),
        };
        reply.body = vec![0; reply.header("content-length")?.parse().ok()?];
        stream.read_exact(&mut reply.body).await.ok()?;
        Some(reply)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Asserts what holds for every answer with a JSON body.
    pub(crate) fn assert_proper(&self) {
        let id = self.header("x-powercontext-request-id").expect("a request id");
        assert_eq!(id.len(), 16, "{id}");
        assert!(
            id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
            "{id}"
        );
        assert_eq!(self.header("content-type"), Some("application/json"));
        if self.status >= 400 && self.header("content-length") != Some("0") {
            let body = self.json();
            let error = body["error"].as_object().expect("an envelope");
            assert_eq!(body.as_object().map(serde_json::Map::len), Some(1));
            let mut names: Vec<_> = error.keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, ["code", "details", "message"]);
            assert!(error["details"].is_object() || error["details"].is_null());
        }
    }
}
