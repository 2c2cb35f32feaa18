//! Rows of `pc_model_usage_daily`: what model calls cost, added up per scope, day of the database's clock, purpose and
//! operation. Statistics: nothing decides by them, so they are written outside the transaction of the work that they
//! tell of, and a write that fails is lost.

use std::sync::Arc;

use powercontext_core::ids::ScopeId;
use powercontext_core::usage::{ModelOperation, Purpose};

use crate::store::conn::Value;
use crate::store::db::Db;
use crate::store::error::TxError;
use crate::store::names::TxName;
use crate::store::sql::statements;
use crate::store::tx::{Tx, TxFuture};

statements! {
    /// Texts of this aggregate.
    UsageSql, usage { add }
}

/// The cost of some calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// Whom they were made for.
    pub scope: ScopeId,
    /// What for.
    pub purpose: Purpose,
    /// What was made.
    pub operation: ModelOperation,
    /// Requests.
    pub requests: u64,
    /// Tokens read, as far as the provider said.
    pub input_tokens: u64,
    /// Tokens written, as far as the provider said.
    pub output_tokens: u64,
    /// Whether the provider always said how many were read.
    pub input_complete: bool,
    /// Whether the provider always said how many were written.
    pub output_complete: bool,
}

/// Adds the cost to today's row.
///
/// # Errors
/// [`TxError`]; after [`TxError::Unknown`] it may have been added.
pub async fn add(db: &Db, spent: Spent) -> Result<(), TxError> {
    db.autocommit_with(TxName::Usage, &Arc::new(spent), add_in).await
}

fn add_in<'t>(tx: &'t mut Tx, spent: &'t Spent) -> TxFuture<'t, ()> {
    Box::pin(async move {
        let sql = UsageSql::of(tx.dialect());
        let args = [
            Value::from(spent.scope.as_str()),
            Value::from(spent.purpose.as_str()),
            Value::from(spent.operation.as_str()),
            Value::count(spent.requests),
            Value::count(spent.input_tokens),
            Value::count(spent.output_tokens),
            Value::from(spent.input_complete),
            Value::from(spent.output_complete),
        ];
        tx.execute(sql.add, &args).await.map(|_| ())
    })
}
