//! Reading work: one item, a page of them, the attempts of one, the depth of the queue.

use std::sync::Arc;

use powercontext_core::ids::{ScopeId, WorkId, WorkKind};
use powercontext_core::limits::OPERATIONS_PAGE_MAX;
use powercontext_core::operation::OperationKind;
use powercontext_core::time::DbTime;

use crate::ledger::Ledger;
use crate::store::attempts::{self, AttemptRow};
use crate::store::works::{self, Depth, PageFilter, WorkRow};
use crate::store::{TxError, TxName};

/// Which operations to show.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Only of this scope.
    pub scope: Option<ScopeId>,
    /// Only of this public kind.
    pub kind: Option<OperationKind>,
    /// Only in this state: one of [`WorkState::NAMES`](powercontext_core::work::WorkState::NAMES).
    pub status: Option<&'static str>,
    /// Only behind this item in the order of the page.
    pub before: Option<(DbTime, WorkId)>,
    /// How many, 1 to 100.
    pub limit: u32,
}

/// A page of operations, newest first.
#[derive(Debug, Clone)]
pub struct Page {
    /// The items.
    pub rows: Vec<WorkRow>,
    /// Where the next page starts; set whenever this one is full.
    pub next: Option<(DbTime, WorkId)>,
}

impl Ledger {
    /// Reads one public operation; `None` for an internal kind too.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn operation(&self, id: WorkId) -> Result<Option<WorkRow>, TxError> {
        Ok(self
            .work(id)
            .await?
            .filter(|row| OperationKind::of(&row.kind).is_some()))
    }

    /// Reads a page of public operations.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn operations(&self, request: PageRequest) -> Result<Page, TxError> {
        let kinds = request
            .kind
            .map_or_else(|| OperationKind::ALL.to_vec(), |kind| vec![kind]);
        let kinds = kinds
            .into_iter()
            .filter_map(|kind| WorkKind::parse(kind.work_kind()).ok())
            .collect();
        let limit = request.limit.clamp(1, OPERATIONS_PAGE_MAX);
        let PageRequest {
            scope, status, before, ..
        } = request;
        let filter = Arc::new((
            PageFilter {
                scope,
                kinds,
                status,
                before,
            },
            limit,
        ));
        let rows = self
            .db()
            .read_with(TxName::Operations, &filter, |tx, (filter, limit)| {
                Box::pin(works::page(tx, filter, *limit))
            })
            .await?;
        let is_full = rows.len() == limit as usize;
        let next = rows.last().filter(|_| is_full).map(|row| (row.created_at, row.item.id));
        Ok(Page { rows, next })
    }

    /// The attempts of an item in order of their numbers, the newest 100.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn attempts(&self, id: WorkId) -> Result<Vec<AttemptRow>, TxError> {
        self.db()
            .read_with(TxName::Operations, &Arc::new(id), |tx, id| {
                Box::pin(attempts::list(tx, *id))
            })
            .await
    }

    /// Live items by kind and state, with the database time of the reading.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn depths(&self) -> Result<(DbTime, Vec<Depth>), TxError> {
        self.db()
            .read(TxName::Gauges, |tx| {
                Box::pin(async move { Ok((tx.now().await?, works::depths(tx).await?)) })
            })
            .await
    }
}
