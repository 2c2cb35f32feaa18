//! A deployment with the two families that only tests have: what a test captures for them, asks of them and tells their
//! runs, and what the rows say of it.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::families::test_only::{self, BOUNDED, Settings, TestFamilies, UNBOUNDED};
use powercontext::ledger::{FlushRequest, Flushed, KindSpec, Kinds, LeaseTerm, Ledger};
use powercontext::rt;
use powercontext::store::sources::{self, Payload};
use powercontext::store::{DatabaseUrl, Db, DbLimits, TxName, intents};
use powercontext_core::ids::{ScopeId, SourceId, SourceType, WorkId};
use powercontext_core::refs::SourceRef;
use powercontext_core::time::Span;
use powercontext_tests::facts;
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON};

/// Both families: each promise is proven with both retry policies.
pub(crate) const BOTH: [&str; 2] = [BOUNDED, UNBOUNDED];
/// Items that a worker runs.
pub(crate) const RUNNING: &str = "status = 'running'";
/// Longest wait of the processes for work that nobody wakes them for.
const POLL_MS: &str = "0.1";

/// Most attempts of `KIND` that went on at one moment.
pub(crate) const MOST_AT_ONCE: &str = "select coalesce(max(n), 0) from (
    select count(*) n from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id and i.kind = KIND
    join pc_work_attempts b on b.started_at <= a.started_at and (b.finished_at is null or b.finished_at > a.started_at)
    join pc_work_items j on j.work_id = b.work_id and j.kind = KIND
    group by a.work_id, a.attempt_no) as at_once";

/// A family that is checked so often, in milliseconds, with this cap; 0 for none.
pub(crate) fn settings(schedule_ms: Option<u64>, cap: u16) -> Settings {
    Settings {
        schedule_ms,
        workers_max: NonZeroU16::new(cap),
        ..Settings::default()
    }
}

/// A scope of a family's own: families share journals, and each test says which of them a source is for.
fn own(family: &str, scope: &str) -> String {
    format!("{family}.{scope}")
}

/// A query in which scopes of a family have their short names.
fn named(family: &str, sql: &str) -> String {
    let sql = sql.replace("scope_id = '", &format!("scope_id = '{family}."));
    sql.replace("scope_id like '", &format!("scope_id like '{family}."))
}

/// A deployment, what its test families are set to, and a ledger beside its processes.
pub(crate) struct Stage {
    pub(crate) deployment: Deployment,
    pub(crate) families: TestFamilies,
    pub(crate) ledger: Ledger,
}

impl Stage {
    /// A migrated deployment without processes, whose test families are set alike.
    pub(crate) async fn new(settings: Settings) -> anyhow::Result<Self> {
        Self::with(settings.clone(), settings).await
    }

    /// The same with settings of their own for the bounded and the unbounded one.
    pub(crate) async fn with(bounded: Settings, unbounded: Settings) -> anyhow::Result<Self> {
        let deployment = Deployment::new().await?.with("WORKER_POLL_SECONDS", POLL_MS);
        let families = TestFamilies {
            door: deployment.database.beside("door"),
            bounded: Some(bounded.clone()),
            unbounded: Some(unbounded.clone()),
        };
        for family in BOTH {
            std::fs::create_dir_all(families.door.join(family))?;
        }
        let limits = DbLimits::for_lease(Span::seconds(30), 4);
        let db = Db::open(&DatabaseUrl::parse(deployment.database.url())?, limits).await?;
        let kinds = Kinds::new([
            test_only::kind(BOUNDED, &bounded),
            test_only::kind(UNBOUNDED, &unbounded),
        ]);
        let ledger = Ledger::new(db, kinds, rt::member_id(), LeaseTerm::Timed(Span::seconds(30)));
        Ok(Self {
            deployment,
            families,
            ledger,
        })
    }

    /// The same with this setting for every process.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.deployment = self.deployment.with(key, value);
        self
    }

    /// Processes of a role.
    pub(crate) fn role(&self, role: &str) -> anyhow::Result<Setup> {
        let named = serde_json::to_string(&self.families)?;
        Ok(self.deployment.role(role).with_variable(test_only::VARIABLE, &named))
    }

    /// Starts a process of a role.
    pub(crate) async fn start(&self, role: &str) -> anyhow::Result<Server> {
        self.role(role)?.start().await
    }

    fn spec(&self, family: &str) -> anyhow::Result<KindSpec> {
        let mut specs = self.ledger.kinds().iter();
        let spec = specs.find(|spec| spec.family.as_str() == family);
        spec.cloned().context("no such family")
    }

    fn word(&self, family: &str, of: &str) -> PathBuf {
        let name = match of {
            "all" | "discovery" => of.to_owned(),
            scope => own(family, scope),
        };
        self.families.door.join(family).join(name)
    }

    /// Tells the runs of a family what to do in this scope; `all` for every scope, `discovery` for its discovery. An empty
    /// word is none.
    pub(crate) fn say(&self, family: &str, of: &str, word: &str) -> anyhow::Result<()> {
        let file = self.word(family, of);
        if word.is_empty() {
            return match std::fs::remove_file(file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            };
        }
        // Whole at once: a run may read at any moment.
        let new = self.word(family, &format!(".{}", rt::hex_id()));
        std::fs::write(&new, word)?;
        Ok(std::fs::rename(new, file)?)
    }

    /// Captures a source for one family, as the API does for those that read sources: its row, its place in the journal and
    /// the family's mark, in one transaction.
    pub(crate) async fn capture(&self, family: &str, scope: &str) -> anyhow::Result<()> {
        let source = SourceRef {
            name: SourceType::content(),
            source_id: SourceId::parse(rt::hex_id())?,
        };
        let scope = ScopeId::parse(own(family, scope))?;
        let input = Arc::new((scope, self.spec(family)?.binding, source));
        let captured = self
            .ledger
            .db()
            .tx_with(TxName::Capture, &input, |tx, (scope, binding, source)| {
                Box::pin(async move {
                    let head = sources::lock_head(tx, scope).await?;
                    sources::append(tx, scope, source, &Payload::native("text".to_owned(), None), head).await?;
                    intents::mark_dirty(tx, binding, scope).await
                })
            });
        Ok(captured.await?)
    }

    /// One source in each of so many scopes; answers the scopes.
    pub(crate) async fn capture_many(&self, family: &str, name: &str, count: usize) -> anyhow::Result<Vec<String>> {
        let mut scopes = Vec::new();
        for n in 0..count {
            scopes.push(format!("{name}{n}"));
            self.capture(family, &scopes[n]).await?;
        }
        Ok(scopes)
    }

    /// Asks for a scope's pending work; answers the item that does it.
    pub(crate) async fn flush(&self, family: &str, scope: &str) -> anyhow::Result<String> {
        let request = FlushRequest {
            kind: self.spec(family)?.kind,
            scope: ScopeId::parse(own(family, scope))?,
            payload: serde_json::json!({}),
        };
        match self.ledger.flush(request).await? {
            Flushed::Accepted { id, .. } => Ok(id.to_string()),
            other => anyhow::bail!("not accepted: {other:?}"),
        }
    }

    /// A query in which `KIND`, `BINDING` and short names of scopes stand for the family's.
    fn query(&self, family: &str, sql: &str) -> anyhow::Result<String> {
        let spec = self.spec(family)?;
        let sql = sql.replace("KIND", &format!("'{}'", spec.kind.as_str()));
        let sql = sql.replace("BINDING", &format!("'{}'", spec.binding.as_str()));
        Ok(named(family, &sql))
    }

    /// Whole number that such a query answers.
    pub(crate) async fn number(&self, family: &str, sql: &str) -> anyhow::Result<i64> {
        facts::number(&self.deployment.database, &self.query(family, sql)?).await
    }

    /// Items of a family for which this holds, as `status = 'running'`.
    pub(crate) async fn items(&self, family: &str, which: &str) -> anyhow::Result<i64> {
        let sql = format!("select count(*) from pc_work_items where kind = KIND and {which}");
        self.number(family, &sql).await
    }

    /// Waits until so many items of a family are like this.
    pub(crate) async fn wait(&self, family: &str, which: &str, count: i64) -> anyhow::Result<()> {
        self.wait_within(family, which, count, SOON).await
    }

    /// The same, within this time.
    pub(crate) async fn wait_within(
        &self,
        family: &str,
        which: &str,
        count: i64,
        within: Duration,
    ) -> anyhow::Result<()> {
        until(&format!("{count} items of {family} with {which}"), within, async || {
            let now = self.items(family, which).await?;
            ensure!(now == count, "there are {now}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until nothing of a family is pending or under way.
    pub(crate) async fn rests(&self, family: &str) -> anyhow::Result<()> {
        until(&format!("{family} rests"), SOON, async || {
            let live = self.items(family, "status not in ('succeeded', 'cancelled')").await?;
            let dirty =
                "select count(*) from pc_artifact_processing_intents where binding_name = BINDING and is_dirty = 1";
            let dirty = self.number(family, dirty).await?;
            ensure!(live == 0 && dirty == 0, "{live} live items, {dirty} dirty scopes");
            Ok(Some(()))
        })
        .await
    }

    /// Dirty, clean, requested, handled.
    pub(crate) async fn counters(&self, family: &str, scope: &str) -> anyhow::Result<[i64; 4]> {
        let mut counters = [0; 4];
        for (counter, column) in counters.iter_mut().zip(["dirty", "clean", "requested", "handled"]) {
            let sql = format!(
                "select {column}_generation from pc_artifact_processing_intents
                 where binding_name = BINDING and scope_id = '{scope}'"
            );
            *counter = self.number(family, &sql).await?;
        }
        Ok(counters)
    }

    /// How far a scope is consumed, and by how many commits.
    pub(crate) async fn cursor(&self, family: &str, scope: &str) -> anyhow::Result<(i64, i64)> {
        let of = |column: &str| {
            format!("select {column} from pc_source_cursors where scope_id = '{scope}' and binding_name = BINDING")
        };
        Ok((
            self.number(family, &of("sequence")).await?,
            self.number(family, &of("generation")).await?,
        ))
    }

    /// Outcomes of a scope's attempts in their order, whatever item they belong to; an open one is `open`.
    pub(crate) async fn outcomes(&self, family: &str, scope: &str) -> anyhow::Result<Vec<String>> {
        self.of_attempts(family, scope, "coalesce(a.outcome, 'open')").await
    }

    /// Error codes of a scope's attempts in their order; one that did not fail has none.
    pub(crate) async fn codes(&self, family: &str, scope: &str) -> anyhow::Result<Vec<String>> {
        self.of_attempts(family, scope, "coalesce(a.error_code, '')").await
    }

    async fn of_attempts(&self, family: &str, scope: &str, column: &str) -> anyhow::Result<Vec<String>> {
        let sql = format!(
            "select {column} from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id
             where i.kind = KIND and i.scope_id = '{scope}' order by a.started_at, a.attempt_no"
        );
        let sql = self.query(family, &sql)?;
        let rows = self.deployment.database.raw().await?.rows(&sql).await?;
        rows.iter().map(|row| row.text(0)).collect()
    }

    /// The one item of a family for which this holds, and its version.
    pub(crate) async fn item(&self, family: &str, which: &str) -> anyhow::Result<(String, u64)> {
        let sql = format!("select work_id, state_version from pc_work_items where kind = KIND and {which}");
        let sql = self.query(family, &sql)?;
        let rows = self.deployment.database.raw().await?.rows(&sql).await?;
        ensure!(rows.len() == 1, "{} items of {family} with {which}", rows.len());
        Ok((rows[0].text(0)?, u64::try_from(rows[0].int(1)?)?))
    }

    /// Revives the failed item of a scope, as somebody on the host.
    pub(crate) async fn revive(&self, family: &str, scope: &str) -> anyhow::Result<()> {
        let failed = format!("status = 'failed' and scope_id = '{scope}'");
        let (id, version) = self.item(family, &failed).await?;
        self.ledger.retry_on_host(WorkId::parse(&id)?, version).await?;
        Ok(())
    }

    /// Pairs of runs of one lane that went on at the same time.
    pub(crate) async fn overlaps(&self) -> anyhow::Result<i64> {
        let sql = "select count(*) from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id
             join pc_work_items j on j.lane_key = i.lane_key join pc_work_attempts b on b.work_id = j.work_id
             where (a.work_id, a.attempt_no) <> (b.work_id, b.attempt_no)
               and a.started_at < b.started_at and (a.finished_at is null or a.finished_at > b.started_at)";
        facts::number(&self.deployment.database, sql).await
    }

    /// Most runs of a family that went on at one moment.
    pub(crate) async fn most_at_once(&self, family: &str) -> anyhow::Result<i64> {
        self.number(family, MOST_AT_ONCE).await
    }

    /// Generation of a family's last scan, and whether it goes on.
    pub(crate) async fn scan(&self, family: &str) -> anyhow::Result<(i64, bool)> {
        let of = |column: &str| {
            format!("select {column} from pc_artifact_processing_binding_states where binding_name = BINDING")
        };
        Ok((
            self.number(family, &of("scan_generation")).await?,
            self.number(family, &of("scan_in_progress")).await? == 1,
        ))
    }

    /// Whether no rule of the ledger is broken.
    pub(crate) async fn holds(&self) -> anyhow::Result<()> {
        let overlaps = self.overlaps().await?;
        ensure!(overlaps == 0, "{overlaps} pairs of runs of one lane overlap");
        self.deployment.holds().await
    }
}
