//! A transaction's packets (ADR 0017): BEGIN travels with the first, COMMIT with the last.

use std::sync::atomic::Ordering;

use super::{Tx, report, statement_name};
use crate::store::error::{DriverError, TxError, corrupt};
use crate::store::packet::{Answer, Packet, Touches};

/// A statement of a packet that waits for a lock keeps a thread of the server, because the rest of its text waits with it; and
/// the server has few. So packets wait 10 ms, and whoever sends them has another way. Other statements wait a second.
const BEGIN_SHORT: &str = "SET ob_trx_lock_timeout = 10000;\nSTART TRANSACTION;\n";
const BEGIN_LONG: &str = "SET ob_trx_lock_timeout = 1000000;\nSTART TRANSACTION";
const WAIT_LONG: &str = "SET ob_trx_lock_timeout = 1000000";

/// The statements that go out together with COMMIT, and how many rows each of them must touch.
#[derive(Debug)]
pub(super) struct Last {
    packet: Packet,
    touches: Vec<Touches>,
}

impl Tx {
    /// Sends several statements in one round trip and answers one [`Answer`] each. OceanBase only; where BEGIN has not
    /// been sent yet it goes with them.
    pub(crate) async fn packet(&mut self, packet: &Packet) -> Result<Vec<Answer>, TxError> {
        let (begin, ahead) = self.take_begin();
        let mut answers = self.send(packet, begin, ahead).await?;
        answers.drain(..ahead);
        Ok(answers)
    }

    /// Sends reads in one round trip, ahead of the transaction if it has not begun: they see what is committed, and a
    /// transaction that needs nothing more is none.
    pub(crate) async fn peek(&mut self, packet: &Packet) -> Result<Vec<Answer>, TxError> {
        self.send(packet, "", 0).await
    }

    async fn send(&mut self, packet: &Packet, before: &'static str, ahead: usize) -> Result<Vec<Answer>, TxError> {
        let sent = self.conn().packet(packet.text(before, "")).await;
        let answers = sent.map_err(|(at, error)| report(packet.name(at.saturating_sub(ahead)), &error))?;
        if answers.len() == packet.statements() + ahead {
            Ok(answers)
        } else {
            Err(corrupt("answers of a packet"))
        }
    }

    /// Sends these statements together with COMMIT, once the body has ended well. They come last in the lock order and
    /// must each touch so many rows; that is known only after the commit, so another number is an outcome to look up
    /// ([`TxError::Unknown`]). Only statements whose rows were proven to be there belong here. OceanBase only.
    pub(crate) fn with_commit(&mut self, packet: Packet, touches: Vec<Touches>) {
        debug_assert_eq!(packet.statements(), touches.len());
        self.last = Some(Last { packet, touches });
    }

    /// BEGIN, where it has not been sent yet, and how many statements that is.
    fn take_begin(&mut self) -> (&'static str, usize) {
        if !std::mem::take(&mut self.begins) {
            return ("", 0);
        }
        if self.conn().set_short_waits(true) {
            (BEGIN_SHORT, 2)
        } else {
            ("START TRANSACTION;\n", 1)
        }
    }

    /// Sends BEGIN if it has not been sent, for statements that wait for locks as long as they must.
    pub(super) async fn begin(&mut self) -> Result<(), TxError> {
        if !std::mem::take(&mut self.begins) {
            return Ok(());
        }
        let sql = if self.conn().set_short_waits(false) {
            BEGIN_LONG
        } else {
            "START TRANSACTION"
        };
        self.conn()
            .raw(sql)
            .await
            .map_err(|error| report("-- tx.begin", &error))
    }

    /// Lets statements outside of a transaction wait for locks as long as they must.
    pub(super) async fn wait_long(&mut self) -> Result<(), TxError> {
        if !self.conn().set_short_waits(false) {
            return Ok(());
        }
        self.conn()
            .raw(WAIT_LONG)
            .await
            .map_err(|error| report("-- tx.waits", &error))
    }

    pub(super) async fn commit_with(&mut self, last: &Last) -> Result<(), TxError> {
        let (begin, ahead) = self.take_begin();
        self.progress.commit_sent.store(true, Ordering::Release);
        let text = last.packet.text(begin, ";\nCOMMIT");
        let answers = match self.conn().packet(text).await {
            Ok(answers) => answers,
            // A statement before COMMIT was refused, and the server stopped there.
            Err((at, error @ DriverError::OceanBase(sqlx::Error::Database(_)))) if at < last.touches.len() + ahead => {
                self.progress.commit_sent.store(false, Ordering::Release);
                self.rollback().await;
                return Err(report(last.packet.name(at.saturating_sub(ahead)), &error));
            }
            Err(_) => return Err(TxError::Unknown),
        };
        self.give_back();
        let touched = answers.iter().skip(ahead).map(|answer| answer.touched);
        if touched
            .zip(&last.touches)
            .all(|(touched, wanted)| wanted.contains(&touched))
        {
            return Ok(());
        }
        tracing::error!(
            statement = statement_name(last.packet.name(0)),
            "a committed write touched other rows than it must"
        );
        Err(TxError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::db::LOCK_WAIT;

    #[test]
    fn a_session_that_waited_shortly_waits_as_long_as_a_new_one_again() {
        let long = format!("ob_trx_lock_timeout = {}", LOCK_WAIT.as_millis() * 1000);
        assert!(BEGIN_LONG.contains(&format!("{long};")) && WAIT_LONG.ends_with(&long));
    }
}
