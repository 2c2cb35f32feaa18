//! A packet: several statements in one text, sent in one round trip and answered in their order.
//!
//! A text cannot have parameters, so this type is the only way to make one: it takes texts that the program was compiled
//! with, integers, and bytes, which it spells as hex literals. A value cannot become SQL. The engine stops at the first
//! statement that fails; one that touches no row does not fail, so whoever sends a packet compares the counts.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use powercontext_core::time::DbTime;

use crate::store::conn::{Row, Value};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Before the row of an insert.
const ROW: &str = "VALUES (";

/// What one statement of a packet answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Rows that it touched.
    pub(crate) touched: u64,
    /// Rows that it read.
    pub(crate) rows: Vec<Row>,
}

/// These items, the last repeated up to the next power of two.
pub(crate) fn pad<T>(items: &[T]) -> impl Iterator<Item = &T> {
    let last = items.len().saturating_sub(1);
    (0..items.len().next_power_of_two()).filter_map(move |at| items.get(at.min(last)))
}

/// How many rows a write may touch.
pub(crate) type Touches = RangeInclusive<u64>;

/// Statements on their way.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    text: String,
    names: Vec<&'static str>,
}

impl Packet {
    /// Starts a statement, whose first line names it.
    pub(crate) fn statement(&mut self, sql: &'static str) -> &mut Self {
        self.begin(sql).sql(sql)
    }

    fn begin(&mut self, name: &'static str) -> &mut Self {
        if !self.names.is_empty() {
            self.text.push_str(";\n");
        }
        self.names.push(name);
        self
    }

    /// A statement with its parameters, one for each `?` of its text.
    pub(crate) fn bound(&mut self, sql: &'static str, args: &[Value<'_>]) -> &mut Self {
        self.begin(sql).fill(sql, args)
    }

    /// An insert of one row, as one of all these.
    pub(crate) fn bound_rows(&mut self, sql: &'static str, rows: &[Vec<Value<'_>>]) -> &mut Self {
        let at = sql.find(ROW).map_or(sql.len(), |at| at + ROW.len() - 1);
        let (head, row) = sql.split_at(at);
        self.statement(head);
        self.list(rows, |packet, args| {
            packet.fill(row, args);
        })
    }

    /// Goes on with a text whose marks these are.
    fn fill(&mut self, sql: &'static str, args: &[Value<'_>]) -> &mut Self {
        let mut parts = sql.split('?');
        self.sql(parts.next().unwrap_or_default());
        debug_assert_eq!(parts.clone().count(), args.len(), "{sql}");
        for (value, part) in args.iter().zip(parts) {
            self.value(value).sql(part);
        }
        self
    }

    fn value(&mut self, value: &Value<'_>) -> &mut Self {
        match value {
            Value::Int(Some(n)) => self.int(*n),
            Value::Id(Some(text)) | Value::Text(Some(text)) => self.id(text),
            Value::Blob(Some(bytes)) => self.bytes(bytes),
            Value::Time(Some(time)) => self.time(*time),
            Value::Int(None) | Value::Id(None) | Value::Text(None) | Value::Blob(None) | Value::Time(None) => {
                self.sql("NULL")
            }
        }
    }

    /// Goes on with a statement.
    pub(crate) fn sql(&mut self, sql: &'static str) -> &mut Self {
        self.text.push_str(sql);
        self
    }

    /// A whole number.
    pub(crate) fn int(&mut self, n: i64) -> &mut Self {
        write!(self.text, "{n}").expect("a text takes everything");
        self
    }

    /// A count or position; saturates where no counter comes.
    pub(crate) fn count(&mut self, n: u64) -> &mut Self {
        self.int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        if bytes.is_empty() {
            // An empty hex literal has three characters on OceanBase.
            return self.sql("''");
        }
        self.text.reserve(bytes.len() * 2 + 3);
        self.text.push_str("X'");
        for byte in bytes {
            self.text.push(char::from(HEX[usize::from(byte >> 4)]));
            self.text.push(char::from(HEX[usize::from(byte & 15)]));
        }
        self.sql("'")
    }

    /// An id, key, name or code.
    pub(crate) fn id(&mut self, id: &str) -> &mut Self {
        self.bytes(id.as_bytes())
    }

    /// A moment of database time.
    pub(crate) fn time(&mut self, time: DbTime) -> &mut Self {
        let micros = time.micros().max(0);
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        write!(self.text, "FROM_UNIXTIME({seconds}.{micros:06})").expect("a text takes everything");
        self
    }

    /// One part for each item, with commas between.
    pub(crate) fn list<T>(&mut self, items: &[T], mut part: impl FnMut(&mut Self, &T)) -> &mut Self {
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                self.sql(", ");
            }
            part(self, item);
        }
        self
    }

    /// [`Packet::list`] with its last part repeated up to the next power of two. For lists in which that changes nothing: the
    /// server keeps a plan for each length, and so has seven of them for up to 64 items.
    pub(crate) fn padded<T>(&mut self, items: &[T], part: impl FnMut(&mut Self, &T)) -> &mut Self {
        let places: Vec<&T> = pad(items).collect();
        let mut part = part;
        self.list(&places, |packet, item| part(packet, *item))
    }

    /// Bytes of its text so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// How many statements it holds.
    pub(crate) fn statements(&self) -> usize {
        self.names.len()
    }

    /// The text of a statement as far as it was compiled in; its first line is the name.
    pub(crate) fn name(&self, statement: usize) -> &'static str {
        self.names.get(statement).copied().unwrap_or("-- packet")
    }

    /// The name of a statement.
    pub(crate) fn short_name(&self, statement: usize) -> &'static str {
        let first = self.name(statement).lines().next();
        first.map_or("packet", |line| line.trim_start_matches("-- "))
    }

    /// The text, behind what must go before it and before what must go behind.
    pub(crate) fn text(&self, before: &'static str, behind: &'static str) -> String {
        [before, &self.text, behind].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padded_list_repeats_its_last_part_up_to_a_power_of_two() {
        for (items, wanted) in [
            (0, ""),
            (1, "0"),
            (2, "0, 1"),
            (3, "0, 1, 2, 2"),
            (5, "0, 1, 2, 3, 4, 4, 4, 4"),
        ] {
            let mut packet = Packet::default();
            let items: Vec<i64> = (0..items).collect();
            packet.padded(&items, |packet, n| {
                packet.int(*n);
            });
            assert_eq!(packet.text("", ""), wanted);
        }
    }

    #[test]
    fn parameters_stand_where_their_marks_are() {
        let mut packet = Packet::default();
        let args = [
            Value::Int(Some(-3)),
            Value::Id(Some("a?b")),
            Value::Text(Some("é")),
            Value::Blob(Some(b"")),
            Value::Time(Some(DbTime::from_micros(1_000_000))),
            Value::Time(None),
            Value::Int(None),
        ];
        packet.bound("-- a.b\nSELECT ?, ?, ?, ?, ?, ?, ? FROM t", &args);
        assert_eq!(
            packet.text("", ""),
            "-- a.b\nSELECT -3, X'613f62', X'c3a9', '', FROM_UNIXTIME(1.000000), NULL, NULL FROM t"
        );
        assert_eq!((packet.statements(), packet.short_name(0)), (1, "a.b"));
    }

    #[test]
    fn an_insert_of_one_row_becomes_one_of_many() {
        let mut packet = Packet::default();
        let rows = [
            vec![Value::Int(Some(1)), Value::Int(None)],
            vec![Value::Int(Some(2)), Value::Int(Some(3))],
        ];
        packet.bound_rows("-- a.b\nINSERT INTO t (x, y)\nVALUES (?, ?)", &rows);
        packet.bound("-- c.d\nSELECT ?", &[Value::Int(Some(4))]);
        assert_eq!(
            packet.text("", ""),
            "-- a.b\nINSERT INTO t (x, y)\nVALUES (1, NULL), (2, 3);\n-- c.d\nSELECT 4"
        );
        assert_eq!((packet.short_name(0), packet.short_name(1)), ("a.b", "c.d"));
    }

    #[test]
    fn a_value_is_an_integer_or_a_hex_literal_whatever_it_says() {
        let mut packet = Packet::default();
        let evil = "'; DROP TABLE pc_work_items; -- \u{0}\\ é";
        packet.statement("-- a.b\nSELECT ").id(evil).sql(", ").int(-7).sql(", ");
        packet.count(u64::MAX).sql(", ").bytes(b"");
        packet.statement("-- c.d\nSELECT ").list(&[1, 2], |packet, n| {
            packet.int(*n);
        });
        packet.sql(", ").time(DbTime::from_micros(1_700_000_000_000_042));
        let hex = evil.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let wanted = format!(
            "BEGIN;\n-- a.b\nSELECT X'{hex}', -7, 9223372036854775807, '';\n-- c.d\nSELECT 1, 2, \
             FROM_UNIXTIME(1700000000.000042);\nCOMMIT"
        );
        assert_eq!(packet.text("BEGIN;\n", ";\nCOMMIT"), wanted);
        assert_eq!((packet.statements(), packet.name(1)), (2, "-- c.d\nSELECT "));
    }
}
