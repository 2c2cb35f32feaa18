//! A transaction's packets (ADR 0017): BEGIN travels with the first, COMMIT with the last.

use std::sync::atomic::Ordering;

use super::{Tx, report, statement_name};
use crate::store::conn::{Dialect, Row, Value};
use crate::store::error::{DriverError, TxError, corrupt};
use crate::store::packet::{Answer, Packet, Touches};

/// A statement of a packet that waits for a lock keeps a thread of the server, because the rest of its text waits with it; and
/// the server has few. So packets wait 10 ms, and whoever sends them has another way. Other statements wait a second.
const BEGIN_SHORT: &str = "SET ob_trx_lock_timeout = 10000;\nSTART TRANSACTION;\n";
const BEGIN_LONG: &str = "SET ob_trx_lock_timeout = 1000000;\nSTART TRANSACTION";
const WAIT_LONG: &str = "SET ob_trx_lock_timeout = 1000000";

/// Writes that wait are sent when their text has this length: the server keeps a text as a whole.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// A row with more than this goes out by itself, as parameters: in a text each byte takes two, and the server takes no text of more than
/// 16 MiB.
const ROW_BYTES_MAX: usize = 1 << 18;

/// What most writes touch.
pub(super) const ONE: Touches = 1..=1;

/// Writes that go out together, and of each how many rows it may touch and what it means when it does not.
#[derive(Debug, Default)]
pub(super) struct Writes {
    packet: Packet,
    wanted: Vec<(Touches, Option<TxError>)>,
}

impl Tx {
    /// Sends several statements in one round trip and answers one [`Answer`] each. OceanBase only; where BEGIN has not
    /// been sent yet it goes with them.
    pub(crate) async fn packet(&mut self, packet: &Packet) -> Result<Vec<Answer>, TxError> {
        self.send_waiting().await?;
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

    /// Runs reads that need nothing of each other's answers.
    pub(crate) async fn fetch_together<const N: usize>(
        &mut self,
        statements: [(&'static str, &[Value<'_>]); N],
    ) -> Result<[Vec<Row>; N], TxError> {
        let mut found = Vec::with_capacity(N);
        match self.dialect {
            Dialect::OceanBase => {
                let mut packet = Packet::default();
                for (sql, args) in statements {
                    packet.bound(sql, args);
                }
                found.extend(self.packet(&packet).await?.into_iter().map(|answer| answer.rows));
            }
            Dialect::Sqlite => {
                for (sql, args) in statements {
                    found.push(self.fetch(sql, args).await?);
                }
            }
        }
        found.try_into().map_err(|_| corrupt("answers of a packet"))
    }

    /// Runs a write that must touch exactly one row, and whose answer the body does not wait for: on OceanBase it goes out with
    /// the next ones, at the latest before COMMIT, and an error comes then. `otherwise` is what it means when it touches
    /// another number of rows or a row that is there already; `None` for [`TxError::Rows`] and [`TxError::Constraint`].
    pub(crate) async fn later(
        &mut self,
        sql: &'static str,
        args: &[Value<'_>],
        otherwise: Option<TxError>,
    ) -> Result<(), TxError> {
        match self.dialect {
            Dialect::OceanBase if bytes(args) <= ROW_BYTES_MAX => {
                self.waiting.packet.bound(sql, args);
                self.wait(1, otherwise).await
            }
            Dialect::OceanBase | Dialect::Sqlite => {
                let touched = self.execute(sql, args).await;
                touches(sql, touched, &ONE, otherwise)
            }
        }
    }

    /// [`Tx::later`] for an insert of one row, with all these rows. The server keeps a plan for each number of them, so they
    /// go in parts whose lengths are powers of two.
    pub(crate) async fn later_rows(&mut self, sql: &'static str, rows: &[Vec<Value<'_>>]) -> Result<(), TxError> {
        if self.dialect == Dialect::Sqlite {
            for args in rows {
                self.later(sql, args, None).await?;
            }
            return Ok(());
        }
        let mut left = rows;
        while !left.is_empty() {
            let (part, rest) = left.split_at(part(left));
            left = rest;
            match part {
                [row] => self.later(sql, row, None).await?,
                rows => {
                    self.waiting.packet.bound_rows(sql, rows);
                    self.wait(rows.len() as u64, None).await?;
                }
            }
        }
        Ok(())
    }

    async fn wait(&mut self, wanted: u64, otherwise: Option<TxError>) -> Result<(), TxError> {
        self.waiting.wanted.push((wanted..=wanted, otherwise));
        if self.waiting.packet.len() >= WAITING_BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends everything that waits, because more comes.
    async fn send_waiting(&mut self) -> Result<(), TxError> {
        self.flush().await?;
        match self.last.take() {
            Some(last) => self.write(last).await,
            None => Ok(()),
        }
    }

    /// Sends the writes that wait for the next statement.
    pub(super) async fn flush(&mut self) -> Result<(), TxError> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.wanted.is_empty() {
            return Ok(());
        }
        self.write(waiting).await
    }

    async fn write(&mut self, Writes { packet, wanted }: Writes) -> Result<(), TxError> {
        let (begin, ahead) = self.take_begin();
        let answers = match self.conn().packet(packet.text(begin, "")).await {
            Ok(answers) => answers,
            Err((at, error)) => {
                let at = at.saturating_sub(ahead);
                let otherwise = wanted.into_iter().nth(at).and_then(|(_, otherwise)| otherwise);
                let refused = Err(report(packet.name(at), &error));
                return touches(packet.name(at), refused, &ONE, otherwise);
            }
        };
        if answers.len() != wanted.len() + ahead {
            return Err(corrupt("answers of a packet"));
        }
        let touched = answers.into_iter().skip(ahead).map(|answer| answer.touched);
        for (at, (touched, (wanted, otherwise))) in touched.zip(wanted).enumerate() {
            touches(packet.name(at), Ok(touched), &wanted, otherwise)?;
        }
        Ok(())
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
        debug_assert!(self.last.is_none(), "a transaction has one last packet");
        let wanted = touches.into_iter().map(|touches| (touches, None)).collect();
        self.last = Some(Writes { packet, wanted });
    }

    /// [`Tx::with_commit`] for a write of one row that this transaction has locked. Where more comes after all it goes out ahead
    /// of that.
    pub(crate) async fn with_commit_one(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<(), TxError> {
        match self.dialect {
            Dialect::OceanBase => {
                let last = self.last.get_or_insert_default();
                last.packet.bound(sql, args);
                last.wanted.push((ONE, None));
                Ok(())
            }
            Dialect::Sqlite => self.execute_one(sql, args).await,
        }
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
            return self.send_waiting().await;
        }
        let sql = if self.conn().set_short_waits(false) {
            BEGIN_LONG
        } else {
            "START TRANSACTION"
        };
        self.conn()
            .raw(sql)
            .await
            .map_err(|error| report("-- tx.begin", &error))?;
        self.send_waiting().await
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

    pub(super) async fn commit_with(&mut self, last: &Writes) -> Result<(), TxError> {
        let (begin, ahead) = self.take_begin();
        self.progress.commit_sent.store(true, Ordering::Release);
        let text = last.packet.text(begin, ";\nCOMMIT");
        let answers = match self.conn().packet(text).await {
            Ok(answers) => answers,
            // A statement before COMMIT was refused, and the server stopped there.
            Err((at, error @ DriverError::OceanBase(sqlx::Error::Database(_)))) if at < last.wanted.len() + ahead => {
                self.progress.commit_sent.store(false, Ordering::Release);
                self.rollback().await;
                return Err(report(last.packet.name(at.saturating_sub(ahead)), &error));
            }
            Err(_) => return Err(TxError::Unknown),
        };
        self.give_back();
        let touched = answers.iter().skip(ahead).map(|answer| answer.touched);
        if touched
            .zip(&last.wanted)
            .all(|(touched, (wanted, _))| wanted.contains(&touched))
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

/// Bytes of the longer kind in a row.
fn bytes(args: &[Value<'_>]) -> usize {
    let bytes = |value: &Value<'_>| match value {
        Value::Text(Some(text)) | Value::Id(Some(text)) => text.len(),
        Value::Blob(Some(bytes)) => bytes.len(),
        _ => 0,
    };
    args.iter().map(bytes).sum()
}

/// How many of these rows, of which there is one at least, go out in one statement: a power of two, and not too many bytes.
fn part(rows: &[Vec<Value<'_>>]) -> usize {
    let mut part = 1 << rows.len().max(1).ilog2();
    while part > 1 && rows[..part].iter().map(|row| bytes(row)).sum::<usize>() > ROW_BYTES_MAX {
        part /= 2;
    }
    part
}

/// What a write that may touch so many rows came to.
pub(super) fn touches(
    sql: &'static str,
    touched: Result<u64, TxError>,
    wanted: &Touches,
    otherwise: Option<TxError>,
) -> Result<(), TxError> {
    match touched {
        Ok(touched) if wanted.contains(&touched) => Ok(()),
        Ok(touched) => Err(otherwise.unwrap_or(TxError::Rows {
            statement: statement_name(sql),
            expected: *wanted.start(),
            touched,
        })),
        Err(TxError::Constraint) => Err(otherwise.unwrap_or(TxError::Constraint)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::db::LOCK_WAIT;

    #[test]
    fn rows_go_out_in_powers_of_two_of_them_that_are_no_longer_than_a_long_row() {
        let text = "x".repeat(ROW_BYTES_MAX / 4);
        let rows = |count, text| vec![vec![Value::Int(Some(1)), Value::Text(Some(text))]; count];
        for (count, length, expected) in [
            (1, 0, 1),
            (2, 0, 2),
            (7, 0, 4),
            (64, 100, 64),
            (7, ROW_BYTES_MAX / 4, 4),
            (8, ROW_BYTES_MAX / 4, 4),
            (3, ROW_BYTES_MAX / 4, 2),
        ] {
            assert_eq!(part(&rows(count, &text[..length])), expected, "{count} of {length}");
        }
        let long = text.repeat(5);
        assert_eq!(part(&rows(3, &long)), 1);
        assert_eq!(bytes(&rows(1, &long)[0]), long.len());
    }

    #[test]
    fn a_session_that_waited_shortly_waits_as_long_as_a_new_one_again() {
        let long = format!("ob_trx_lock_timeout = {}", LOCK_WAIT.as_millis() * 1000);
        assert!(BEGIN_LONG.contains(&format!("{long};")) && WAIT_LONG.ends_with(&long));
    }
}
