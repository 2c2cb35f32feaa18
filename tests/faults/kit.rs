//! What the fault suites share: a schema of their own, a proxy before the server, a ledger behind it, the real Memory
//! family with the deterministic model over HTTP, and questions to the rows that go around the proxy.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use powercontext::dev::model::{ModelOptions, serve};
use powercontext::families::memory::{self, MemoryFamily, MemorySettings, load};
use powercontext::families::{
    self, Cancel, Committed, DomainWrite, Family, FamilySpec, HostError, Load, Loaded, ProcessorHost, Reached, Reserve,
    Reserved, ResultCode, RunResult, Search, SearchHit,
};
use powercontext::inference::openai::OpenAiChat;
use powercontext::inference::{ClientSettings, Usage};
use powercontext::ledger::{
    Claim, Claimed, Done, FlushRequest, Flushed, KindSpec, Kinds, LeaseTerm, Ledger, NewSource, capture,
};
use powercontext::rt;
use powercontext::store::{DatabaseUrl, Db, DbLimits};
use powercontext::worker::{KindSettings, LeaseSettings, WorkerSettings};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, SourceId, SourceType, WorkId};
use powercontext_core::refs::{Position, SourceRef};
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use powercontext_tests::checker;
use powercontext_tests::db::TestDb;
use powercontext_tests::proxy::Proxy;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Connections of the pool behind the proxy.
pub(crate) const CONNECTIONS: u32 = 8;
/// The shortest lease that a deployment may set has a transaction limit of 2 s.
pub(crate) const LEASE: Span = Span::seconds(6);

/// A schema, a proxy before it, and what a server has on it.
pub(crate) struct Rig {
    pub(crate) proxy: Proxy,
    /// By way of the proxy.
    pub(crate) db: Db,
    /// By way of the proxy.
    pub(crate) ledger: Ledger,
    /// Past the proxy.
    pub(crate) direct: Ledger,
    pub(crate) family: Arc<dyn Family>,
    test: TestDb,
    model: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.model.cancel();
    }
}

pub(crate) fn limits() -> DbLimits {
    DbLimits::for_lease(LEASE, CONNECTIONS)
}

pub(crate) fn kind() -> KindSpec {
    KindSpec::memory(RetryPolicy::BOUNDED)
}

impl Rig {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let test = TestDb::oceanbase_alone().await?;
        let proxy = Proxy::before(test.url()).await?;
        let db = Db::open(&DatabaseUrl::parse(proxy.url())?, limits()).await?;
        let ledger = |db: &Db| {
            Ledger::new(
                db.clone(),
                Kinds::new([kind()]),
                rt::member_id(),
                LeaseTerm::Timed(LEASE),
            )
        };
        let (ledger, direct) = (ledger(&db), ledger(&test.db));
        let model = CancellationToken::new();
        let family = deterministic(model.clone()).await?;
        Ok(Self {
            proxy,
            db,
            ledger,
            direct,
            family,
            test,
            model,
        })
    }

    /// Captures a source past the proxy.
    pub(crate) async fn capture(&self, scope: &ScopeId, id: &str) -> anyhow::Result<()> {
        capture(self.direct.db(), source(scope, id)?).await?;
        Ok(())
    }

    /// A scope with one source and a queued item, both made past the proxy.
    pub(crate) async fn queued(&self, name: &str) -> anyhow::Result<(ScopeId, WorkId)> {
        let scope = ScopeId::parse(name)?;
        self.capture(&scope, "1").await?;
        let Flushed::Accepted { id, .. } = self.direct.flush(request(&scope)).await? else {
            bail!("{name} was not accepted");
        };
        Ok((scope, id))
    }

    /// A running item of the ledger behind the proxy, claimed in peace.
    pub(crate) async fn running(&self, name: &str) -> anyhow::Result<Claimed> {
        let (_, id) = self.queued(name).await?;
        let claimed = self.ledger.claim(&claim(1)).await?;
        let [claimed] = <[Claimed; 1]>::try_from(claimed).map_err(|all| anyhow::anyhow!("{} claimed", all.len()))?;
        ensure!(*claimed.held.key() == id, "another item was claimed");
        Ok(claimed)
    }

    /// What the family makes of a claimed item: reads past the proxy, the model over HTTP, nothing written.
    pub(crate) async fn done(&self, claimed: &Claimed) -> anyhow::Result<Done> {
        let host = Reader {
            db: self.direct.db().clone(),
            scope: claimed.scope.clone(),
        };
        let done = self.family.run(&host, &claimed.scope, &Cancel::new()).await;
        let done = done.map_err(|code| anyhow::anyhow!("the run failed: {}", code.code()))?;
        let write = done.write.map(|write| {
            let DomainWrite::Memory(write) = write else {
                panic!("the write of another family")
            };
            Arc::new(write) as Arc<dyn powercontext::ledger::DomainWrite>
        });
        Ok(Done {
            write,
            head_read: done.reached.journal_head,
            cursor: done.reached.cursor,
            code: done.result.code.as_str(),
            result: done.result.payload,
        })
    }

    /// Changes rows past the proxy and past the product.
    pub(crate) async fn execute(&self, sql: String) -> anyhow::Result<()> {
        let mut conn = self.raw().await?;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
        conn.close().await?;
        Ok(())
    }

    /// One number from the rows, past the proxy.
    pub(crate) async fn number(&self, sql: String) -> anyhow::Result<i64> {
        let mut conn = self.raw().await?;
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut conn).await?;
        let number = row.try_get(0)?;
        conn.close().await?;
        Ok(number)
    }

    /// The first column of some rows, past the proxy.
    pub(crate) async fn keys(&self, sql: &'static str) -> anyhow::Result<BTreeSet<String>> {
        let mut conn = self.raw().await?;
        let rows = sqlx::raw_sql(sql).fetch_all(&mut conn).await?;
        let key = |row: &MySqlRow| Ok(String::from_utf8(row.try_get(0)?)?);
        let keys = rows.iter().map(key).collect();
        conn.close().await?;
        keys
    }

    /// A connection of its own past the proxy.
    pub(crate) async fn raw(&self) -> anyhow::Result<MySqlConnection> {
        Ok(MySqlConnection::connect(self.test.url()).await?)
    }

    /// How many rows a scope has in a table.
    pub(crate) async fn rows(&self, table: &str, scope: &ScopeId) -> anyhow::Result<i64> {
        self.number(format!("select count(*) from {table} where scope_id = '{scope}'"))
            .await
    }

    /// The outcomes of an item's attempts, in order; an open one is `open`.
    pub(crate) async fn outcomes(&self, id: WorkId) -> anyhow::Result<Vec<String>> {
        let attempts = self.direct.attempts(id).await?;
        let outcome = |outcome: Option<String>| outcome.unwrap_or_else(|| "open".to_owned());
        Ok(attempts.into_iter().map(|row| outcome(row.outcome)).collect())
    }

    /// The state of an item.
    pub(crate) async fn state(&self, id: WorkId) -> anyhow::Result<&'static str> {
        let row = self.direct.work(id).await?.context("no such item")?;
        Ok(row.item.state.name())
    }

    /// That every row of the ledger is sound.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        checker::check(self.test.url(), kind().binding.as_str()).await
    }

    /// That an item ran once and left one Memory revision, a cursor at the journal's head and nothing owed.
    pub(crate) async fn succeeded_once(&self, scope: &ScopeId, id: WorkId) -> anyhow::Result<()> {
        ensure!(
            self.state(id).await? == "succeeded",
            "{scope}: {}",
            self.state(id).await?
        );
        let outcomes = self.outcomes(id).await?;
        ensure!(outcomes == ["succeeded"], "{scope}: attempts {outcomes:?}");
        ensure!(
            self.rows("pc_work_items", scope).await? == 1,
            "{scope}: more than one item"
        );
        ensure!(
            self.rows("pc_artifacts", scope).await? == 1,
            "{scope}: more than one revision"
        );
        let settled = format!(
            "select count(*) from pc_artifact_processing_intents i
             join pc_source_cursors c on c.scope_id = i.scope_id and c.binding_name = i.binding_name
             join pc_source_journal_heads h on h.scope_id = i.scope_id
             where i.scope_id = '{scope}' and i.requested_generation = i.handled_generation
               and i.dirty_generation = i.clean_generation and c.sequence = h.position"
        );
        ensure!(
            self.number(settled).await? == 1,
            "{scope}: owed, dirty, or the cursor stands short"
        );
        Ok(())
    }
}

pub(crate) fn source(scope: &ScopeId, id: &str) -> anyhow::Result<NewSource> {
    let source = SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(id)?,
    };
    let text = format!("We decided to ship release {id} of {scope} on Friday.");
    Ok(NewSource::native(scope.clone(), source, text, None))
}

pub(crate) fn request(scope: &ScopeId) -> FlushRequest {
    FlushRequest {
        kind: kind().kind,
        scope: scope.clone(),
        payload: serde_json::json!({}),
    }
}

pub(crate) fn claim(limit: u32) -> Claim {
    Claim {
        kinds: vec![(kind().kind, limit)],
    }
}

/// A Worker of four runs with the shortest lease.
pub(crate) fn worker_settings() -> WorkerSettings {
    let length = LEASE.as_std();
    WorkerSettings {
        concurrency: 4,
        kinds: vec![KindSettings {
            kind: kind().kind,
            cap: None,
            timeout: Duration::from_mins(2),
            needs_model: true,
        }],
        poll_max: Duration::from_millis(200),
        lease: Some(LeaseSettings {
            length,
            heartbeat: length / 4,
        }),
        grace: Duration::from_secs(1),
        provider: None,
    }
}

async fn deterministic(stop: CancellationToken) -> anyhow::Result<Arc<dyn Family>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    rt::spawn(serve(listener, ModelOptions::default(), stop));
    family(address, Duration::from_secs(30))
}

/// The Memory family with a provider at this address; one generation may take so long.
pub(crate) fn family(provider: SocketAddr, timeout: Duration) -> anyhow::Result<Arc<dyn Family>> {
    let generator = OpenAiChat::new(ClientSettings {
        timeout,
        ..ClientSettings::new("dev", format!("http://{provider}/v1"))
    })?;
    let settings = MemorySettings::default();
    Ok(Arc::new(MemoryFamily::new(
        memory::spec(),
        settings,
        Arc::new(generator),
    )))
}

/// What a run may read.
struct Reader {
    db: Db,
    scope: ScopeId,
}

#[async_trait]
impl ProcessorHost for Reader {
    async fn load(&self, request: Load) -> Result<Loaded, HostError> {
        let loaded = load::load(&self.db, &self.scope, request).await;
        loaded.map_err(|_| HostError::Unavailable)
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

/// A family that finds nothing to do, at once.
pub(crate) struct Nothing(FamilySpec);

impl Nothing {
    pub(crate) fn new() -> Self {
        Self(FamilySpec {
            work: kind(),
            workers_max: None,
            timeout: Span::seconds(60),
            needs_model: false,
        })
    }
}

#[async_trait]
impl Family for Nothing {
    fn spec(&self) -> &FamilySpec {
        &self.0
    }

    async fn run(&self, _: &dyn ProcessorHost, _: &ScopeId, _: &Cancel) -> Result<families::Done, FailCode> {
        let at = Position::new(0);
        Ok(families::Done {
            write: None,
            result: RunResult {
                code: ResultCode::AlreadyCommitted,
                payload: serde_json::json!({}),
            },
            reached: Reached {
                cursor: at,
                journal_head: at.next(),
            },
            usage: Usage::default(),
        })
    }
}
