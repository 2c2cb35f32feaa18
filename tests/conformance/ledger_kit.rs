//! What the tests of the ledger share: a database of their own, ledgers of several processes on it, and short words for
//! what a client, a worker and time do. Every test ends with the checker of the ledger's rows.

use std::num::NonZeroU16;
use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use powercontext::ledger::{
    Claim, Claimed, DomainWrite, Done, Ended, FlushRequest, Flushed, KindSpec, Kinds, LeaseTerm,
};
use powercontext::ledger::{Ledger, OperatorError};
use powercontext::rt;
use powercontext::store::sources::{self, Payload};
use powercontext::store::works::WorkRow;
use powercontext::store::{Db, Dialect, Tx, TxError, TxName, cursors, intents};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, ScopeId, SourceId, SourceType, WorkId};
use powercontext_core::refs::{Cursor, Position, SourceRef};
use powercontext_core::supervise::intent::Intent;
use powercontext_core::time::Span;
use powercontext_core::work::Outcome;
use powercontext_core::work::retry::RetryPolicy;
use powercontext_tests::checker;
use powercontext_tests::db::TestDb;
use powercontext_tests::raw::Raw;

/// Runs tests, each an `async fn(&Kit) -> anyhow::Result<()>` of the module, on SQLite and on OceanBase, each with a
/// database of its own, and checks the ledger's rows after each.
macro_rules! on_both_engines_alone {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            use $crate::ledger_kit::Kit;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                let kit = Kit::new(powercontext_tests::db::TestDb::sqlite().await?);
                super::$name(&kit).await?;
                kit.check().await
            })*
        }

        mod oceanbase {
            use $crate::ledger_kit::Kit;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                let kit = Kit::new(powercontext_tests::db::TestDb::oceanbase_alone().await?);
                super::$name(&kit).await?;
                kit.check().await
            })*
        }
    };
}
pub(crate) use on_both_engines_alone;

/// Three attempts, then failed.
pub(crate) const THREE_ATTEMPTS: RetryPolicy = RetryPolicy::Bounded {
    attempts_max: 3,
    base: Span::seconds(2),
    max: Span::seconds(300),
};

/// A lease that no test outlives; [`Kit::lapse`] ends one.
pub(crate) const LONG_LEASE: LeaseTerm = LeaseTerm::Timed(Span::seconds(600));

/// A database with two processes' ledgers on it.
pub(crate) struct Kit {
    pub(crate) test: TestDb,
    /// A process.
    pub(crate) a: Ledger,
    /// Another process.
    pub(crate) b: Ledger,
    slots_max: Option<NonZeroU16>,
}

fn spec() -> KindSpec {
    KindSpec::memory(THREE_ATTEMPTS)
}

/// The kind of these tests with a cap over all processes.
pub(crate) fn capped(slots_max: Option<NonZeroU16>) -> KindSpec {
    KindSpec { slots_max, ..spec() }
}

pub(crate) fn binding() -> BindingName {
    spec().binding
}

pub(crate) fn ledger(db: &Db, spec: KindSpec, lease: LeaseTerm) -> Ledger {
    Ledger::new(db.clone(), Kinds::new([spec]), rt::member_id(), lease)
}

impl Kit {
    pub(crate) fn new(test: TestDb) -> Self {
        Self::capped(test, None)
    }

    /// The same where all processes together run at most so many.
    pub(crate) fn capped(test: TestDb, slots_max: Option<NonZeroU16>) -> Self {
        let [a, b] = [(); 2].map(|()| ledger(&test.db, capped(slots_max), LONG_LEASE));
        Self { test, a, b, slots_max }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.test.db
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.test.dialect() == Dialect::Sqlite
    }

    /// One more process.
    pub(crate) fn process(&self) -> Ledger {
        ledger(self.db(), capped(self.slots_max), LONG_LEASE)
    }

    pub(crate) fn scope(&self, name: &str) -> anyhow::Result<ScopeId> {
        self.test.scope(name)
    }

    /// A scope with one source.
    pub(crate) async fn scope_with_source(&self, name: &str) -> anyhow::Result<ScopeId> {
        let scope = self.scope(name)?;
        self.capture(&scope).await?;
        Ok(scope)
    }

    /// Captures one source as the API does.
    pub(crate) async fn capture(&self, scope: &ScopeId) -> anyhow::Result<Position> {
        let input = Arc::new((scope.clone(), binding(), SourceId::parse(rt::hex_id())?));
        Ok(self
            .db()
            .tx_with(TxName::Capture, &input, |tx, (scope, binding, id)| {
                Box::pin(async move {
                    let head = sources::lock_head(tx, scope).await?;
                    let name = SourceType::content();
                    let source = SourceRef {
                        name,
                        source_id: id.clone(),
                    };
                    let payload = Payload::native("text".to_owned(), None);
                    let at = sources::append(tx, scope, &source, &payload, head).await?;
                    intents::mark_dirty(tx, binding, scope).await?;
                    Ok(at)
                })
            })
            .await?)
    }

    pub(crate) async fn flush(&self, scope: &ScopeId) -> anyhow::Result<Flushed> {
        Ok(self.a.flush(request(scope)).await?)
    }

    /// Flushes and expects an item.
    pub(crate) async fn accepted(&self, scope: &ScopeId) -> anyhow::Result<(WorkId, bool)> {
        match self.flush(scope).await? {
            Flushed::Accepted { id, created } => Ok((id, created)),
            other => bail!("not accepted: {other:?}"),
        }
    }

    /// Captures, flushes and claims in a scope of this name.
    pub(crate) async fn running(&self, name: &str) -> anyhow::Result<(ScopeId, Claimed)> {
        let scope = self.scope_with_source(name).await?;
        let (id, created) = self.accepted(&scope).await?;
        anyhow::ensure!(created, "the scope had an item");
        let claimed = claim_one(&self.a).await?;
        anyhow::ensure!(*claimed.held.key() == id, "another item was claimed");
        Ok((scope, claimed))
    }

    /// An item that has failed for good.
    pub(crate) async fn failed(&self, name: &str) -> anyhow::Result<(ScopeId, WorkId)> {
        let (scope, claimed) = self.running(name).await?;
        anyhow::ensure!(self.a.fail(&claimed, FailCode::InvalidPayload).await? == Ended::Failed);
        Ok((scope, *claimed.held.key()))
    }

    pub(crate) async fn head(&self, scope: &ScopeId) -> anyhow::Result<Position> {
        let scope = Arc::new(scope.clone());
        let db = self.db();
        Ok(db
            .read_with(TxName::Load, &scope, |tx, scope| Box::pin(sources::head(tx, scope)))
            .await?)
    }

    pub(crate) async fn cursor(&self, scope: &ScopeId) -> anyhow::Result<Cursor> {
        let key = Arc::new((scope.clone(), binding()));
        let read = self.db().read_with(TxName::Load, &key, |tx, (scope, binding)| {
            Box::pin(cursors::get(tx, scope, binding))
        });
        Ok(read.await?)
    }

    pub(crate) async fn intent(&self, scope: &ScopeId) -> anyhow::Result<Intent> {
        let key = Arc::new((scope.clone(), binding()));
        let read = self.db().read_with(TxName::Load, &key, |tx, (scope, binding)| {
            Box::pin(intents::get(tx, binding, scope))
        });
        Ok(read.await?)
    }

    /// Dirty, clean, requested, handled.
    pub(crate) async fn counters(&self, scope: &ScopeId) -> anyhow::Result<[u64; 4]> {
        let intent = self.intent(scope).await?;
        Ok([
            intent.dirty().get(),
            intent.clean().get(),
            intent.requested().get(),
            intent.handled().get(),
        ])
    }

    pub(crate) async fn row(&self, id: WorkId) -> anyhow::Result<WorkRow> {
        self.a.work(id).await?.context("no such item")
    }

    pub(crate) async fn status(&self, id: WorkId) -> anyhow::Result<&'static str> {
        Ok(self.row(id).await?.item.state.name())
    }

    /// The outcomes of an item's attempts in order; an open one is `open`.
    pub(crate) async fn outcomes(&self, id: WorkId) -> anyhow::Result<Vec<String>> {
        let attempts = self.a.attempts(id).await?;
        Ok(attempts
            .into_iter()
            .map(|row| row.outcome.unwrap_or_else(|| "open".to_owned()))
            .collect())
    }

    /// What a run that reads everything pending now hands to the finish.
    pub(crate) async fn done(&self, scope: &ScopeId) -> anyhow::Result<Done> {
        let (from, head) = (self.cursor(scope).await?, self.head(scope).await?);
        Ok(done(scope, from, head, head))
    }

    /// Reads everything pending and finishes.
    pub(crate) async fn finish(&self, ledger: &Ledger, claimed: &Claimed) -> anyhow::Result<Ended> {
        let done = self.done(&claimed.scope).await?;
        Ok(ledger.finish(claimed, done).await?)
    }

    pub(crate) async fn raw(&self) -> anyhow::Result<Raw> {
        Raw::connect(self.test.url()).await
    }

    /// Lets an item's lease run out.
    pub(crate) async fn lapse(&self, id: WorkId) -> anyhow::Result<()> {
        let mut raw = self.raw().await?;
        let ago = raw.ago(1);
        let sql = format!("update pc_work_items set lease_expires_at = {ago} where work_id = '{id}'");
        anyhow::ensure!(raw.execute(&sql).await? == 1);
        Ok(())
    }

    /// Lets the leases of a scope's items run out.
    pub(crate) async fn lapse_scope(&self, scope: &ScopeId) -> anyhow::Result<()> {
        let mut raw = self.raw().await?;
        let ago = raw.ago(1);
        raw.execute(&format!(
            "update pc_work_items set lease_expires_at = {ago}
             where scope_id = '{scope}' and status in ('running', 'cancelling')"
        ))
        .await?;
        Ok(())
    }

    /// The items that are not over.
    pub(crate) async fn live(&self) -> anyhow::Result<Vec<WorkId>> {
        let mut raw = self.raw().await?;
        let sql = "select work_id from pc_work_items where status not in ('succeeded', 'cancelled')";
        let rows = raw.rows(sql).await?;
        rows.iter().map(|row| Ok(WorkId::parse(&row.text(0)?)?)).collect()
    }

    /// Makes every waiting item due.
    pub(crate) async fn all_due(&self) -> anyhow::Result<()> {
        let mut raw = self.raw().await?;
        let ago = raw.ago(1);
        let sql = format!(
            "update pc_work_items set available_at = {ago},
                    ready_at = case when ready_at is null then null else {ago} end
             where status in ('queued', 'retry_wait')"
        );
        raw.execute(&sql).await?;
        Ok(())
    }

    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        checker::check(self.test.url(), binding().as_str()).await
    }
}

pub(crate) fn request(scope: &ScopeId) -> FlushRequest {
    FlushRequest {
        kind: spec().kind,
        scope: scope.clone(),
        payload: serde_json::json!({}),
    }
}

pub(crate) async fn claim(ledger: &Ledger, limit: u32) -> anyhow::Result<Vec<Claimed>> {
    let kinds = vec![(spec().kind, limit)];
    Ok(ledger.claim(&Claim { kinds }).await?)
}

pub(crate) async fn claim_one(ledger: &Ledger) -> anyhow::Result<Claimed> {
    let claimed = claim(ledger, 64).await?;
    let [one] = <[Claimed; 1]>::try_from(claimed).map_err(|all| anyhow::anyhow!("{} items", all.len()))?;
    Ok(one)
}

/// A run's result that moves the cursor from where it was read.
pub(crate) fn done(scope: &ScopeId, from: Cursor, to: Position, head_read: Position) -> Done {
    let write = (from.sequence < to).then(|| step(scope, from, to));
    Done {
        write,
        head_read,
        cursor: from.sequence,
        code: "processed",
        result: serde_json::json!({"current_cursor": to.get()}),
    }
}

/// The only domain write of these tests: a step of the cursor.
pub(crate) fn step(scope: &ScopeId, from: Cursor, to: Position) -> Arc<dyn DomainWrite> {
    let scope = scope.clone();
    Arc::new(CursorStep { scope, from, to })
}

struct CursorStep {
    scope: ScopeId,
    from: Cursor,
    to: Position,
}

#[async_trait]
impl DomainWrite for CursorStep {
    async fn apply(&self, tx: &mut Tx) -> Result<Position, TxError> {
        cursors::lock(tx, &self.scope, &binding()).await?;
        let saved = cursors::save(tx, &self.scope, &binding(), self.from, self.to).await?;
        Ok(saved.sequence)
    }
}

/// Writes the cursor and then finds that the head has moved.
pub(crate) struct Refusing(pub(crate) ScopeId, pub(crate) Cursor);

#[async_trait]
impl DomainWrite for Refusing {
    async fn apply(&self, tx: &mut Tx) -> Result<Position, TxError> {
        let to = self.1.sequence.next();
        cursors::save(tx, &self.0, &binding(), self.1, to).await?;
        Err(TxError::Refused(FailCode::HeadChanged))
    }
}

/// Whether a run waits for another attempt after this outcome.
pub(crate) fn waits(ended: Ended, wanted: Outcome) -> bool {
    matches!(ended, Ended::Waits { outcome, .. } if outcome == wanted)
}

/// The state and version that a refused act tells.
pub(crate) fn conflict<T>(result: Result<T, OperatorError>) -> anyhow::Result<(&'static str, u64)> {
    match result {
        Err(OperatorError::Conflict { status, version, .. }) => Ok((status, version)),
        Err(other) => bail!("not a conflict: {other}"),
        Ok(_) => bail!("not refused"),
    }
}
