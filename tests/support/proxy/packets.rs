//! As much of the MySQL protocol as the fault proxy needs: packets, commands, and which statements a transaction ran.
//!
//! A packet is three bytes of length, one of sequence and a payload. A command starts a new sequence at 0, which no packet
//! of a handshake from a client does. Prepared statements are known by the number that the server's answer gives them.
//! Every statement of the product names itself in a line `-- aggregate.verb`; those names are what a transaction is
//! recognised by.

use std::collections::BTreeMap;

const HEADER: usize = 4;
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_QUIT: u8 = 0x01;
const OK: u8 = 0x00;
const ERR: u8 = 0xff;
/// Status flag of an answer after which another follows.
const MORE_RESULTS: u16 = 0x0008;

/// One packet, header included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet(Vec<u8>);

impl Packet {
    /// As it goes over the wire.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its place in the exchange.
    pub(super) fn sequence(&self) -> u8 {
        self.0[3]
    }

    /// What it says.
    pub(super) fn payload(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}

/// Cuts a stream of bytes into packets.
#[derive(Debug, Default)]
pub(super) struct Packets(Vec<u8>);

impl Packets {
    /// Takes bytes as they came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole packet.
    pub(super) fn next(&mut self) -> Option<Packet> {
        let [a, b, c, _, ..] = self.0[..] else {
            return None;
        };
        let length = HEADER + (usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16);
        if self.0.len() < length {
            return None;
        }
        let rest = self.0.split_off(length);
        Some(Packet(std::mem::replace(&mut self.0, rest)))
    }
}

/// What a client's packet asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// Part of the handshake, or the rest of a long packet.
    None,
    /// Runs statements of these names.
    Statements(Vec<String>),
    /// Commits a transaction that ran statements of these names.
    Commit(Vec<String>),
    /// Wants an answer, but nothing that a rule looks at.
    Other,
    /// Wants no answer.
    Silent,
}

impl Command {
    /// Names of the statements that it runs or commits.
    pub(super) fn ran(&self) -> &[String] {
        match self {
            Self::Statements(ran) | Self::Commit(ran) => ran,
            Self::None | Self::Other | Self::Silent => &[],
        }
    }

    /// Whether the client waits for an answer.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self, Self::None | Self::Silent)
    }
}

/// What one connection has prepared and what its transaction has run.
#[derive(Debug, Default)]
pub(super) struct Session {
    prepared: BTreeMap<u32, Vec<String>>,
    /// Names of the statement whose number comes with the next answer.
    preparing: Option<Vec<String>>,
    ran: Vec<String>,
}

impl Session {
    /// Reads a packet of the client.
    pub(super) fn sent(&mut self, packet: &Packet) -> Command {
        let (0, [command, body @ ..]) = (packet.sequence(), packet.payload()) else {
            return Command::None;
        };
        match *command {
            COM_QUERY => self.query(&String::from_utf8_lossy(body)),
            COM_STMT_PREPARE => {
                self.preparing = Some(names(&String::from_utf8_lossy(body)));
                Command::Other
            }
            COM_STMT_EXECUTE => {
                let found = number(body).and_then(|id| self.prepared.get(&id)).cloned();
                let found = found.unwrap_or_default();
                self.ran.extend(found.iter().cloned());
                Command::Statements(found)
            }
            COM_STMT_CLOSE => {
                if let Some(id) = number(body) {
                    self.prepared.remove(&id);
                }
                Command::Silent
            }
            COM_STMT_SEND_LONG_DATA | COM_QUIT => Command::Silent,
            _ => Command::Other,
        }
    }

    fn query(&mut self, text: &str) -> Command {
        let upper = text.trim().trim_end_matches(';').to_uppercase();
        if upper.starts_with("START TRANSACTION") || upper.starts_with("BEGIN") || upper == "ROLLBACK" {
            self.ran.clear();
        }
        let found = names(text);
        self.ran.extend(found.iter().cloned());
        if upper.ends_with("COMMIT") {
            Command::Commit(std::mem::take(&mut self.ran))
        } else {
            Command::Statements(found)
        }
    }

    /// Reads a packet of the server.
    pub(super) fn received(&mut self, packet: &Packet) {
        if packet.sequence() != 1 {
            return;
        }
        let preparing = self.preparing.take();
        if let (Some(names), [OK, body @ ..]) = (preparing, packet.payload())
            && let Some(id) = number(body)
        {
            self.prepared.insert(id, names);
        }
    }
}

/// How many statements a client's packet holds; one where it is no text. Values in texts are numbers, times and hex digits.
pub(super) fn statements(packet: &Packet) -> u64 {
    let [COM_QUERY, text @ ..] = packet.payload() else {
        return 1;
    };
    let texts = text.split(|byte| *byte == b';');
    texts.filter(|text| !text.trim_ascii().is_empty()).count() as u64
}

/// Whether a packet of the server is the last one of the answer to a command without rows.
pub(super) fn ends_answer(packet: &Packet) -> bool {
    match packet.payload() {
        [ERR, ..] => true,
        [OK, counts @ ..] => !has_more(counts),
        _ => false,
    }
}

/// Reads the status flags behind the two counts of an OK packet.
fn has_more(counts: &[u8]) -> bool {
    let after = |bytes: &[u8]| match bytes.first() {
        Some(0xfc) => 3,
        Some(0xfd) => 4,
        Some(0xfe) => 9,
        _ => 1,
    };
    let rest = counts.get(after(counts)..).unwrap_or_default();
    let rest = rest.get(after(rest)..).unwrap_or_default();
    matches!(rest, [low, high, ..] if u16::from_le_bytes([*low, *high]) & MORE_RESULTS != 0)
}

fn number(body: &[u8]) -> Option<u32> {
    let bytes = body.get(..4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The names in the lines `-- name` of a text.
fn names(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("-- "))
        .map(|name| name.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u8, payload: &[u8]) -> Packet {
        let length = u32::try_from(payload.len()).expect("short").to_le_bytes();
        let mut bytes = vec![length[0], length[1], length[2], sequence];
        bytes.extend_from_slice(payload);
        Packet(bytes)
    }

    fn command(code: u8, body: &[u8]) -> Packet {
        packet(0, &[&[code], body].concat())
    }

    fn query(text: &str) -> Packet {
        command(COM_QUERY, text.as_bytes())
    }

    /// Prepares a statement that the server gives this number.
    fn prepare(session: &mut Session, id: u32, text: &str) {
        assert_eq!(
            session.sent(&command(COM_STMT_PREPARE, text.as_bytes())),
            Command::Other
        );
        session.received(&packet(
            1,
            &[&[OK][..], &id.to_le_bytes(), &[0, 0, 0, 0, 0, 0, 0]].concat(),
        ));
    }

    fn execute(session: &mut Session, id: u32) -> Command {
        session.sent(&command(
            COM_STMT_EXECUTE,
            &[&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat(),
        ))
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn packets_come_out_whole_however_the_bytes_come_in() {
        let long = vec![7; 70_000];
        let sent = [packet(0, b"abc"), packet(1, b""), packet(2, &long)];
        let stream: Vec<u8> = sent.iter().flat_map(|packet| packet.bytes().to_vec()).collect();
        for chunk in [1, 3, 4, 5, 4096, stream.len()] {
            let mut packets = Packets::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(chunk) {
                packets.push(bytes);
                found.extend(std::iter::from_fn(|| packets.next()));
            }
            assert!(found == sent, "chunks of {chunk}");
        }
    }

    #[test]
    fn a_commit_tells_what_its_transaction_ran() {
        let mut session = Session::default();
        assert_eq!(
            session.sent(&query("START TRANSACTION")),
            Command::Statements(Vec::new())
        );
        prepare(&mut session, 7, "-- works.insert\nINSERT INTO t VALUES (?)");
        prepare(&mut session, 9, "-- attempts.open\nINSERT INTO a VALUES (?)");
        assert_eq!(
            execute(&mut session, 9),
            Command::Statements(strings(&["attempts.open"]))
        );
        assert_eq!(
            execute(&mut session, 7),
            Command::Statements(strings(&["works.insert"]))
        );
        assert_eq!(
            session.sent(&query("COMMIT")),
            Command::Commit(strings(&["attempts.open", "works.insert"]))
        );
    }

    #[test]
    fn a_transaction_starts_empty_whatever_the_one_before_ran() {
        let mut session = Session::default();
        prepare(&mut session, 1, "-- works.insert\nINSERT");
        for end in ["COMMIT", "ROLLBACK", "nothing"] {
            execute(&mut session, 1);
            session.sent(&query(end));
            session.sent(&query("START TRANSACTION"));
            assert_eq!(session.sent(&query("commit;")), Command::Commit(Vec::new()), "{end}");
        }
    }

    #[test]
    fn a_text_of_many_statements_that_ends_in_a_commit_is_one() {
        let mut session = Session::default();
        let text = "BEGIN;\n-- attempts.close\nUPDATE a;\n-- works.save_fenced\nUPDATE w;\nCOMMIT";
        assert_eq!(
            session.sent(&query(text)),
            Command::Commit(strings(&["attempts.close", "works.save_fenced"]))
        );
    }

    #[test]
    fn a_text_counts_as_many_statements_as_it_holds() {
        for (text, expected) in [
            ("COMMIT", 1),
            ("START TRANSACTION;\n-- a.b\nSELECT 1;\n", 2),
            ("SET a = 1;\nSTART TRANSACTION;\n-- a.b\nUPDATE a;\nCOMMIT", 4),
        ] {
            assert_eq!(statements(&query(text)), expected, "{text}");
        }
        assert_eq!(statements(&command(COM_STMT_EXECUTE, &[1, 0, 0, 0])), 1);
    }

    #[test]
    fn a_refused_or_closed_statement_has_no_name() {
        let mut session = Session::default();
        session.sent(&command(COM_STMT_PREPARE, b"-- works.get\nSELECT"));
        session.received(&packet(1, &[ERR, 1, 2]));
        assert_eq!(execute(&mut session, 0), Command::Statements(Vec::new()));
        prepare(&mut session, 3, "-- works.get\nSELECT");
        assert_eq!(
            session.sent(&command(COM_STMT_CLOSE, &3_u32.to_le_bytes())),
            Command::Silent
        );
        assert_eq!(execute(&mut session, 3), Command::Statements(Vec::new()));
    }

    #[test]
    fn a_handshake_is_no_command() {
        let mut session = Session::default();
        assert_eq!(session.sent(&packet(1, b"\x03COMMIT")), Command::None);
        assert_eq!(session.sent(&packet(0, b"")), Command::None);
        assert!(!Command::None.is_answered() && Command::Other.is_answered());
    }

    #[test]
    fn an_answer_ends_where_no_more_results_follow() {
        assert!(ends_answer(&packet(1, &[OK, 0, 0, 2, 0, 0, 0])));
        assert!(!ends_answer(&packet(1, &[OK, 0, 0, 0x0a, 0, 0, 0])));
        assert!(!ends_answer(&packet(1, &[OK, 0xfc, 1, 1, 0, 8, 0, 0, 0])));
        assert!(ends_answer(&packet(1, &[OK, 0xfc, 1, 1, 0, 2, 0, 0, 0])));
        assert!(ends_answer(&packet(1, &[ERR, 0, 0])));
        assert!(!ends_answer(&packet(1, &[3])));
    }
}
