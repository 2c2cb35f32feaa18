//! The whole run against the deterministic model over HTTP, with a host in memory.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use powercontext_core::ids::{SourceId, SourceType};
use powercontext_core::memory::{EntryState, MemoryHead};
use powercontext_core::refs::{Cursor, SourceRef};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::dev::model::{Fail, ModelOptions, serve};
use crate::families::{Committed, HostError, LoadedSource, Reserve, Reserved, Search, SearchHit};
use crate::inference::ClientSettings;
use crate::inference::openai::OpenAiChat;

/// Answers every load with one thing, and remembers what was asked.
struct OneLoad {
    answer: Result<Loaded, HostError>,
    asked: Mutex<Vec<Load>>,
}

#[async_trait]
impl ProcessorHost for OneLoad {
    async fn load(&self, request: Load) -> Result<Loaded, HostError> {
        self.asked.lock().expect("not poisoned").push(request);
        self.answer.clone()
    }

    async fn search(&self, _: Search) -> Result<Vec<SearchHit>, HostError> {
        Err(HostError::Unavailable)
    }

    async fn reserve(&self, _: Reserve) -> Result<Reserved, HostError> {
        Err(HostError::Unavailable)
    }

    async fn commit_window(&self, _: DomainWrite) -> Result<Committed, HostError> {
        Err(HostError::Unavailable)
    }
}

/// A model on loopback and a family that asks it.
struct Rig {
    family: MemoryFamily,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Rig {
    async fn new(options: ModelOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stop = CancellationToken::new();
        rt::spawn(serve(listener, options, stop.clone()));
        let settings = ClientSettings::new("dev", format!("http://{address}/v1"));
        let generator = Arc::new(OpenAiChat::new(settings).expect("valid settings"));
        Self {
            family: MemoryFamily::new(spec(), MemorySettings::default(), generator),
            address,
            stop,
        }
    }

    async fn run(&self, answer: Result<Loaded, HostError>) -> Result<Done, FailCode> {
        let host = OneLoad {
            answer,
            asked: Mutex::default(),
        };
        let scope = ScopeId::parse("équipe").expect("valid");
        self.family.run(&host, &scope, &Cancel::new()).await
    }

    async fn chats(&self) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().expect("plain client");
        let counts = client.get(format!("http://{}/requests", self.address)).send().await;
        let counts: Value = counts.expect("up").json().await.expect("JSON");
        counts["chat"].clone()
    }
}

fn source(at: u64) -> SourceRef {
    SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(format!("turn {at}")).expect("valid"),
    }
}

fn loaded(after: u64, texts: &[&str], memory: Option<MemoryHead>) -> Loaded {
    let sources: Vec<_> = (after + 1..)
        .zip(texts)
        .map(|(at, text)| LoadedSource {
            position: Position::new(at),
            source: source(at),
            usage: SourceUse::Evidence,
            content: json!({"content": text, "metadata": {"speaker": "Bo"}}),
        })
        .collect();
    Loaded {
        cursor: Cursor {
            sequence: Position::new(after),
            generation: (after > 0).then_some(after),
        },
        journal_head: Position::new(after + sources.len() as u64),
        sources,
        memory,
    }
}

fn memory_write(done: &Done) -> &MemoryWrite {
    let Some(DomainWrite::Memory(write)) = &done.write else {
        panic!("a memory write");
    };
    write
}

fn head_of(plan: &MemoryPlan) -> MemoryHead {
    MemoryHead {
        revision: plan.revision,
        manifest: plan.content.manifest().to_vec(),
        active: plan
            .new_versions
            .iter()
            .filter(|v| v.state == EntryState::Active)
            .cloned()
            .collect(),
    }
}

#[tokio::test]
async fn a_window_becomes_a_revision_that_cites_its_sources() {
    let rig = Rig::new(ModelOptions::default()).await;
    let texts = ["We decided to ship on Friday.", "Hello!", "私は猫が好きです。"];
    let done = rig.run(Ok(loaded(0, &texts, None))).await.expect("done");
    let write = memory_write(&done);
    let step = write.cursor.expect("a step");
    assert_eq!((step.from, step.through), (Cursor::START, Position::new(3)));
    let plan = write.plan.as_ref().expect("a revision");
    plan.check().expect("a fresh plan holds together");
    assert_eq!((plan.expected_head, plan.revision), (None, Revision::FIRST));
    assert_eq!(plan.lineage_sources, [source(1), source(2), source(3)]);
    let cited: Vec<_> = plan
        .new_versions
        .iter()
        .map(|v| (v.kind.as_str(), v.source_refs.clone()))
        .collect();
    assert_eq!(cited, [("decision", vec![source(1)]), ("preference", vec![source(3)])]);
    assert_eq!(
        done.result.payload,
        json!({
            "previous_cursor": 0, "current_cursor": 3, "high_watermark": 3, "source_count": 3,
            "memory_ref": {"family": "memory", "artifact_id": "memory", "revision": 1},
        })
    );
    assert_eq!((done.result.code, done.usage.requests), (ResultCode::Processed, 1));
    assert!(done.result.fits());
}

#[tokio::test]
async fn a_later_window_revises_and_repeats_nothing() {
    let rig = Rig::new(ModelOptions::default()).await;
    let first = rig
        .run(Ok(loaded(0, &["We decided to deploy on Friday."], None)))
        .await
        .expect("done");
    let head = head_of(memory_write(&first).plan.as_ref().expect("a revision"));

    let repeated = loaded(1, &["We decided to deploy on Friday."], Some(head.clone()));
    let done = rig.run(Ok(repeated)).await.expect("done");
    assert_eq!(memory_write(&done).plan, None);
    assert_eq!(memory_write(&done).cursor.expect("a step").through, Position::new(2));
    assert_eq!(done.result.payload["memory_ref"]["revision"], 1);

    let changed = loaded(2, &["We decided to deploy on Monday."], Some(head.clone()));
    let done = rig.run(Ok(changed)).await.expect("done");
    let plan = memory_write(&done).plan.as_ref().expect("a revision");
    assert_eq!(
        (plan.expected_head, plan.new_versions[0].version),
        (Some(Revision::FIRST), 2)
    );
    assert_eq!(plan.new_versions[0].entry_id, head.active[0].entry_id);
    assert_eq!(plan.new_versions[0].source_refs, [source(3)]);
}

#[tokio::test]
async fn nothing_pending_ends_without_a_model_call_and_without_a_write() {
    let rig = Rig::new(ModelOptions::default()).await;
    let done = rig.run(Ok(loaded(7, &[], None))).await.expect("done");
    assert_eq!((&done.write, done.result.code), (&None, ResultCode::AlreadyCommitted));
    let at = Position::new(7);
    assert_eq!((done.reached.cursor, done.reached.journal_head), (at, at));
    assert_eq!(done.result.payload["memory_ref"], Value::Null);
    assert_eq!(rig.chats().await, 0);
}

#[tokio::test]
async fn sources_kept_for_lineage_are_consumed_unseen() {
    let rig = Rig::new(ModelOptions::default()).await;
    let mut window = loaded(0, &["We decided on secrecy.", "We decided on blue."], None);
    window.sources[0].usage = SourceUse::LineageOnly;
    let done = rig.run(Ok(window.clone())).await.expect("done");
    let plan = memory_write(&done).plan.as_ref().expect("a revision");
    assert_eq!(plan.new_versions.len(), 1);
    assert_eq!(plan.new_versions[0].source_refs, [source(2)]);
    assert_eq!(plan.lineage_sources.len(), 2);
    assert_eq!(rig.chats().await, 1);

    window.sources[1].usage = SourceUse::LineageOnly;
    let done = rig.run(Ok(window)).await.expect("done");
    assert_eq!(memory_write(&done).plan, None);
    assert_eq!(memory_write(&done).cursor.expect("a step").through, Position::new(2));
    assert_eq!(rig.chats().await, 1);
}

#[tokio::test]
async fn a_window_shorter_than_the_journal_does_not_reach_its_head() {
    let rig = Rig::new(ModelOptions::default()).await;
    let mut window = loaded(0, &["We decided on blue."], None);
    window.journal_head = Position::new(5);
    let done = rig.run(Ok(window)).await.expect("done");
    assert_eq!((done.reached.cursor.get(), done.reached.journal_head.get()), (1, 5));
    assert_eq!(done.result.payload["high_watermark"], 5);
}

#[tokio::test]
async fn failures_of_model_and_host_have_their_codes() {
    for (fail, code) in [
        (Fail::TooManyRequests, FailCode::ProviderUnavailable),
        (Fail::ServerError, FailCode::ProviderUnavailable),
        (Fail::Malformed, FailCode::ProviderInvalidOutput),
        (Fail::Empty, FailCode::ProviderInvalidOutput),
    ] {
        let options = ModelOptions {
            fail: Some(fail),
            ..ModelOptions::default()
        };
        let rig = Rig::new(options).await;
        assert_eq!(rig.run(Ok(loaded(0, &["x"], None))).await, Err(code), "{fail:?}");
    }
    let rig = Rig::new(ModelOptions::default()).await;
    for (error, code) in [
        (HostError::LeaseLost, FailCode::LeaseExpired),
        (HostError::Cancelled, FailCode::CancelRequested),
        (HostError::Unavailable, FailCode::Unhandled),
        (HostError::Conflict(FailCode::CursorChanged), FailCode::CursorChanged),
        (
            HostError::Refused(FailCode::SourceWindowUnavailable),
            FailCode::SourceWindowUnavailable,
        ),
    ] {
        assert_eq!(rig.run(Err(error)).await, Err(code), "{error:?}");
    }
    let mut hole = loaded(0, &["x", "y"], None);
    hole.sources.remove(0);
    assert_eq!(rig.run(Ok(hole)).await, Err(FailCode::SourceWindowUnavailable));
    assert_eq!(rig.chats().await, 0);
}

#[tokio::test]
async fn a_raised_cancel_ends_a_run_that_waits_for_its_model() {
    let options = ModelOptions {
        delay: Duration::from_hours(1),
        ..ModelOptions::default()
    };
    let rig = Arc::new(Rig::new(options).await);
    let cancel = Cancel::new();
    let run = {
        let (rig, cancel) = (rig.clone(), cancel.clone());
        rt::spawn(async move {
            let host = OneLoad {
                answer: Ok(loaded(0, &["x"], None)),
                asked: Mutex::default(),
            };
            let scope = ScopeId::parse("s").expect("valid");
            rig.family.run(&host, &scope, &cancel).await
        })
    };
    let asked = async {
        while rig.chats().await != 1 {
            tokio::task::yield_now().await;
        }
    };
    rt::within(Duration::from_secs(10), asked)
        .await
        .expect("the model is asked");
    cancel.raise();
    assert_eq!(run.await.expect("no panic"), Err(FailCode::CancelRequested));
}

#[test]
fn the_load_keeps_to_the_context_window_and_the_source_limit() {
    let settings = MemorySettings::default();
    let load = settings.load();
    assert_eq!(
        (load.sources_max, load.source_bytes_max, load.entry_bytes_max),
        (100, 200_000, 100_000)
    );
    for (limit, sources) in [(0, 1), (1, 1), (100, 100), (101, 100)] {
        let settings = MemorySettings {
            window_sources_max: limit,
            ..settings
        };
        assert_eq!(settings.load().sources_max, sources);
    }
}
