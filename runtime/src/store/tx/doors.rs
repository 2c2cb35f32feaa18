//! The doors to a transaction for plain functions of it and an input that every run shares.

use std::sync::Arc;

use super::{Again, Body, Mode, Tx, TxFuture};
use crate::store::db::Db;
use crate::store::error::TxError;
use crate::store::names::TxName;

fn shared<'t, I, T>(tx: &'t mut Tx, input: &Arc<I>, f: Body<I, T>) -> TxFuture<'t, T>
where
    I: Send + Sync + 'static,
    T: 'static,
{
    let input = Arc::clone(input);
    Box::pin(async move { f(tx, &input).await })
}

impl Db {
    /// [`Db::tx`] for a function of the transaction and an input that every run shares.
    ///
    /// # Errors
    /// As [`Db::tx`].
    pub async fn tx_with<I, T>(&self, name: TxName, input: &Arc<I>, f: Body<I, T>) -> Result<T, TxError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let input = Arc::clone(input);
        self.tx(name, move |tx| shared(tx, &input, f)).await
    }

    /// [`Db::tx_with`] that is not run again when it is busy: for work whose caller has another way then.
    ///
    /// # Errors
    /// As [`Db::tx`].
    pub(crate) async fn tx_once_with<I, T>(&self, name: TxName, input: &Arc<I>, f: Body<I, T>) -> Result<T, TxError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let input = Arc::clone(input);
        self.detached(name, Mode::Write, Again::Broken, move |tx| shared(tx, &input, f))
            .await
    }

    /// [`Db::read`] for a function of the transaction and an input that every run shares.
    ///
    /// # Errors
    /// As [`Db::read`].
    pub async fn read_with<I, T>(&self, name: TxName, input: &Arc<I>, f: Body<I, T>) -> Result<T, TxError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let input = Arc::clone(input);
        self.read(name, move |tx| shared(tx, &input, f)).await
    }

    /// Runs a function whose statements commit one by one: for a single guarded write, which so costs one round trip and
    /// holds its row for no longer than itself. The closure may run more than once, and a run that ended busy may have
    /// written what its earlier statements say.
    ///
    /// # Errors
    /// [`TxError`]; `Unknown` when a statement's reply was lost.
    pub(crate) async fn autocommit_with<I, T>(&self, name: TxName, input: &Arc<I>, f: Body<I, T>) -> Result<T, TxError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let input = Arc::clone(input);
        self.detached(name, Mode::Autocommit, Again::BusyOrBroken, move |tx| {
            shared(tx, &input, f)
        })
        .await
    }
}
