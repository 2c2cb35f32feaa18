//! A read as a value: its text, its parameters and what its rows mean. Reads that need nothing of each other's answers go
//! together, on OceanBase in one round trip.

use crate::store::conn::{Row, Value};
use crate::store::error::TxError;
use crate::store::tx::Tx;

/// A read that has not been sent.
pub(crate) struct Ask<'a, T> {
    /// Its text.
    pub(crate) sql: &'static str,
    /// Its parameters.
    pub(crate) args: Vec<Value<'a>>,
    /// What its rows mean.
    pub(crate) decode: fn(&[Row]) -> Result<T, TxError>,
}

impl<T> Ask<'_, T> {
    fn statement(&self) -> (&'static str, &[Value<'_>]) {
        (self.sql, &self.args)
    }
}

impl Tx {
    /// Sends one read.
    pub(crate) async fn ask<A>(&mut self, a: Ask<'_, A>) -> Result<A, TxError> {
        (a.decode)(&self.fetch(a.sql, &a.args).await?)
    }

    /// Sends two reads together.
    pub(crate) async fn ask_2<A, B>(&mut self, a: Ask<'_, A>, b: Ask<'_, B>) -> Result<(A, B), TxError> {
        let [first, second] = self.fetch_together([a.statement(), b.statement()]).await?;
        Ok(((a.decode)(&first)?, (b.decode)(&second)?))
    }

    /// Sends three reads together.
    pub(crate) async fn ask_3<A, B, C>(
        &mut self,
        a: Ask<'_, A>,
        b: Ask<'_, B>,
        c: Ask<'_, C>,
    ) -> Result<(A, B, C), TxError> {
        let statements = [a.statement(), b.statement(), c.statement()];
        let [first, second, third] = self.fetch_together(statements).await?;
        Ok(((a.decode)(&first)?, (b.decode)(&second)?, (c.decode)(&third)?))
    }
}
