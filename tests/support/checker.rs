//! What must hold of the Work Ledger's rows between two transactions, whatever happened before (`docs/invariants.md`).
//!
//! It reads the rows as they are, over a connection of its own, and knows nothing of the code that wrote them. Every
//! broken rule is told, not only the first.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::raw::Raw;

#[derive(Debug)]
struct Item {
    id: String,
    logical_key: String,
    lane: String,
    seq: i64,
    scope: String,
    kind: String,
    status: String,
    is_ready: bool,
    owner: Option<String>,
    fence: i64,
    attempts: i64,
    budget_used: i64,
    attempts_max: Option<i64>,
    recoveries: i64,
    completed: Option<i64>,
}

impl Item {
    /// Its family: the part of the kind behind the product.
    fn family(&self) -> &str {
        self.kind.split('.').nth(1).unwrap_or_default()
    }

    fn is_live(&self) -> bool {
        !matches!(self.status.as_str(), "succeeded" | "cancelled")
    }

    fn is_waiting(&self) -> bool {
        matches!(self.status.as_str(), "queued" | "retry_wait")
    }

    fn is_running(&self) -> bool {
        matches!(self.status.as_str(), "running" | "cancelling")
    }
}

#[derive(Debug)]
struct Attempt {
    no: i64,
    owner: String,
    fence: i64,
    outcome: Option<String>,
}

#[derive(Debug)]
struct Slot {
    family: String,
    holder: Option<(String, i64)>,
}

struct Rows {
    slots: Vec<Slot>,
    lanes: BTreeMap<String, (Option<i64>, i64)>,
    items: Vec<Item>,
    keys: BTreeMap<String, (String, String)>,
    attempts: BTreeMap<String, Vec<Attempt>>,
    /// Per binding and scope: dirty, clean, requested, handled, owed, and how far cursor and journal stand.
    intents: BTreeMap<(String, String), [i64; 7]>,
}

/// Checks every row of the ledger. `binding` is the one whose intents belong to the items, beside those of maintenance and of
/// the families that only tests have. A binding begins with the name of its family.
///
/// # Errors
/// When the database does not answer, or with every broken rule.
pub async fn check(url: &str, binding: &str) -> anyhow::Result<()> {
    let mut raw = Raw::connect(url).await?;
    // As of one moment, also while there is work under way.
    if matches!(raw, Raw::OceanBase(_)) {
        raw.execute("set session transaction isolation level repeatable read")
            .await?;
    }
    raw.execute("begin").await?;
    let rows = read(&mut raw, binding).await?;
    raw.execute("commit").await?;
    let mut faults = Vec::new();
    lanes(&rows, &mut faults);
    keys(&rows, &mut faults);
    items(&rows, &mut faults);
    intents(&rows, &mut faults);
    slots(&rows, &mut faults);
    ensure!(faults.is_empty(), "broken rules:\n{}", faults.join("\n"));
    Ok(())
}

async fn read(raw: &mut Raw, binding: &str) -> anyhow::Result<Rows> {
    let mut rows = Rows {
        slots: Vec::new(),
        lanes: BTreeMap::new(),
        items: Vec::new(),
        keys: BTreeMap::new(),
        attempts: BTreeMap::new(),
        intents: BTreeMap::new(),
    };
    let sql = "select lane_key, head_sequence, next_sequence from pc_work_lanes";
    for row in raw.rows(sql).await? {
        rows.lanes.insert(row.text(0)?, (row.opt_int(1)?, row.int(2)?));
    }
    let sql = "select logical_key, work_id, lane_key from pc_work_keys";
    for row in raw.rows(sql).await? {
        rows.keys.insert(row.text(0)?, (row.text(1)?, row.text(2)?));
    }
    let sql = "select work_id, attempt_no, owner_id, fence, outcome from pc_work_attempts order by work_id, attempt_no";
    for row in raw.rows(sql).await? {
        let attempt = Attempt {
            no: row.int(1)?,
            owner: row.text(2)?,
            fence: row.int(3)?,
            outcome: row.opt_text(4)?,
        };
        rows.attempts.entry(row.text(0)?).or_default().push(attempt);
    }
    rows.items = read_items(raw).await?;
    let sql = "select family, work_id, fence from pc_artifact_processing_slots order by family, slot_no";
    for row in raw.rows(sql).await? {
        rows.slots.push(Slot {
            family: row.text(0)?,
            holder: row.opt_text(1)?.zip(row.opt_int(2)?),
        });
    }
    let sql = format!(
        "select i.binding_name, i.scope_id, i.dirty_generation, i.clean_generation, i.requested_generation, i.handled_generation,
                i.is_owed + 0, coalesce(c.sequence, 0), coalesce(h.position, 0)
         from pc_artifact_processing_intents i
         left join pc_source_cursors c on c.scope_id = i.scope_id and c.binding_name = i.binding_name
         left join pc_source_journal_heads h on h.scope_id = i.scope_id
         where i.binding_name in ('{binding}', 'maintenance') or i.binding_name like 'test-%'"
    );
    for row in raw.rows(&sql).await? {
        let mut numbers = [0; 7];
        for (column, number) in numbers.iter_mut().enumerate() {
            *number = row.int(column + 2)?;
        }
        rows.intents.insert((row.text(0)?, row.text(1)?), numbers);
    }
    Ok(rows)
}

async fn read_items(raw: &mut Raw) -> anyhow::Result<Vec<Item>> {
    let completed = match raw {
        Raw::OceanBase(_) => "cast(unix_timestamp(completed_at) * 1000000 as signed)",
        Raw::Sqlite(_) => "completed_at",
    };
    let sql = format!(
        "select work_id, logical_key, lane_key, lane_sequence, scope_id, status, ready_at is not null, lease_owner,
                lease_fence, attempt_count, generation_attempt_count, max_attempts, recovery_generation, {completed}, kind
         from pc_work_items order by lane_key, lane_sequence"
    );
    let mut items = Vec::new();
    for row in raw.rows(&sql).await? {
        items.push(Item {
            id: row.text(0)?,
            logical_key: row.text(1)?,
            lane: row.text(2)?,
            seq: row.int(3)?,
            scope: row.text(4)?,
            status: row.text(5)?,
            is_ready: row.int(6)? == 1,
            owner: row.opt_text(7)?,
            fence: row.int(8)?,
            attempts: row.int(9)?,
            budget_used: row.int(10)?,
            attempts_max: row.opt_int(11)?,
            recoveries: row.int(12)?,
            completed: row.opt_int(13)?,
            kind: row.text(14)?,
        });
    }
    Ok(items)
}

/// Notes a broken rule.
macro_rules! rule {
    ($faults:expr, $holds:expr, $($what:tt)*) => { if !$holds { $faults.push(format!($($what)*)); } };
}

/// A lane's head is its first live item, it holds at most two, and places are handed out one after the other (I5).
fn lanes(rows: &Rows, faults: &mut Vec<String>) {
    for (lane, (head, next)) in &rows.lanes {
        let items: Vec<&Item> = rows.items.iter().filter(|item| item.lane == *lane).collect();
        let live: Vec<&Item> = items.iter().copied().filter(|item| item.is_live()).collect();
        rule!(faults, live.len() <= 2, "lane {lane}: {} live items", live.len());
        let first = live.first().map(|item| item.seq);
        rule!(
            faults,
            *head == first,
            "lane {lane}: head {head:?}, first live {first:?}"
        );
        let places: Vec<i64> = items.iter().map(|item| item.seq).collect();
        let all: Vec<i64> = (1..*next).collect();
        rule!(faults, places == all, "lane {lane}: places {places:?}, next {next}");
        for item in &live {
            let is_head = Some(item.seq) == *head;
            let ready = is_head && item.is_waiting();
            rule!(
                faults,
                item.is_ready == ready,
                "{item:?}: ready_at does not tell a waiting head"
            );
            rule!(
                faults,
                is_head || item.status == "queued",
                "{item:?}: ran behind the head"
            );
        }
        let succeeded = |item: &&&Item| item.status == "succeeded";
        let ends: Vec<_> = items.iter().filter(succeeded).map(|item| item.completed).collect();
        rule!(faults, ends.is_sorted(), "lane {lane}: successes out of order");
    }
    for item in &rows.items {
        rule!(faults, rows.lanes.contains_key(&item.lane), "{item:?}: no lane");
    }
}

/// A key row names the newest live item of its key; no ended item holds one (I8).
fn keys(rows: &Rows, faults: &mut Vec<String>) {
    let mut newest: BTreeMap<&str, &Item> = BTreeMap::new();
    for item in rows.items.iter().filter(|item| item.is_live()) {
        newest.insert(&item.logical_key, item);
    }
    for (key, item) in &newest {
        let stored = rows.keys.get(*key);
        let want = Some((item.id.clone(), item.lane.clone()));
        rule!(
            faults,
            stored.cloned() == want,
            "key {key}: {stored:?}, newest live item {item:?}"
        );
    }
    for (key, stored) in &rows.keys {
        rule!(
            faults,
            newest.contains_key(key.as_str()),
            "key {key}: {stored:?} without a live item"
        );
    }
}

/// Attempts are numbered without a hole, end once, and the last one tells the item's state (I2, I9).
fn items(rows: &Rows, faults: &mut Vec<String>) {
    let none = Vec::new();
    for item in &rows.items {
        let attempts = rows.attempts.get(&item.id).unwrap_or(&none);
        let numbers: Vec<i64> = attempts.iter().map(|attempt| attempt.no).collect();
        let all: Vec<i64> = (1..=item.attempts).collect();
        rule!(faults, numbers == all, "{item:?}: attempts {numbers:?}");
        let fences: Vec<i64> = attempts.iter().map(|attempt| attempt.fence).collect();
        let grow = fences.windows(2).all(|pair| pair[0] < pair[1]);
        let is_highest = fences.last().is_none_or(|last| *last <= item.fence);
        rule!(faults, grow && is_highest, "{item:?}: fences {fences:?}");

        let open: Vec<&Attempt> = attempts.iter().filter(|attempt| attempt.outcome.is_none()).collect();
        let is_open = matches!(&open[..], [last] if last.no == item.attempts && last.fence == item.fence
            && Some(&last.owner) == item.owner.as_ref());
        let wanted = if item.is_running() { is_open } else { open.is_empty() };
        rule!(faults, wanted, "{item:?}: open attempts {open:?}");
        rule!(
            faults,
            item.is_running() || item.owner.is_none(),
            "{item:?}: owned and not running"
        );

        let last = attempts.last().and_then(|attempt| attempt.outcome.as_deref());
        let fits = match item.status.as_str() {
            "succeeded" => last == Some("succeeded"),
            "failed" => matches!(last, Some("failed" | "lease_expired_failed")),
            "retry_wait" => matches!(
                last,
                Some("retry_wait" | "released" | "conflict" | "lease_expired_retry")
            ),
            "queued" => (last.is_none() && item.recoveries == 0) || (last.is_some() && item.recoveries > 0),
            "cancelled" => last != Some("succeeded"),
            _ => true,
        };
        rule!(faults, fits, "{item:?}: last outcome {last:?}");
        let succeeded = attempts
            .iter()
            .filter(|attempt| attempt.outcome.as_deref() == Some("succeeded"))
            .count();
        rule!(
            faults,
            succeeded == usize::from(item.status == "succeeded"),
            "{item:?}: {succeeded} successes"
        );
        let within = item.attempts_max.is_none_or(|max| item.budget_used <= max) && item.budget_used <= item.attempts;
        rule!(faults, within, "{item:?}: more attempts than the budget");
        rule!(
            faults,
            item.completed.is_some() != item.is_live(),
            "{item:?}: completed_at"
        );
    }
    for id in rows.attempts.keys() {
        rule!(
            faults,
            rows.items.iter().any(|item| item.id == *id),
            "attempts of no item {id}"
        );
    }
}

/// The pairs are in order; a request is owed exactly while an item lives; nothing clean was left unread (I6, I12).
fn intents(rows: &Rows, faults: &mut Vec<String>) {
    let of = |item: &Item, binding: &str, scope: &str| {
        let (family, is_test) = (item.family(), binding.starts_with("test-"));
        item.scope == scope && is_test == family.starts_with("test-") && (!is_test || binding.starts_with(family))
    };
    for ((binding, scope), numbers) in &rows.intents {
        let [dirty, clean, requested, handled, is_owed, cursor, journal] = *numbers;
        rule!(faults, clean <= dirty, "{scope:?}: clean {clean} > dirty {dirty}");
        rule!(
            faults,
            handled <= requested,
            "{scope:?}: handled {handled} > requested {requested}"
        );
        rule!(
            faults,
            (is_owed == 1) == (requested > handled),
            "{scope:?}: is_owed {is_owed}"
        );
        let lives = rows.items.iter().any(|item| of(item, binding, scope) && item.is_live());
        rule!(
            faults,
            lives == (requested > handled),
            "{scope:?}: requested {requested}, handled {handled}, live {lives}"
        );
        rule!(
            faults,
            cursor <= journal,
            "{scope:?}: cursor {cursor} beyond the journal {journal}"
        );
        rule!(
            faults,
            clean < dirty || cursor == journal,
            "{scope:?}: clean with cursor {cursor} before {journal}"
        );
    }
    for item in rows.items.iter().filter(|item| item.is_live()) {
        let has_intent = rows.intents.keys().any(|(binding, scope)| of(item, binding, scope));
        rule!(faults, has_intent, "{item:?}: no intent");
    }
}

/// A slot is free, or held by one run under its fence; where a family has slots each of its runs holds one, so there are
/// never more of them than slots (I13).
fn slots(rows: &Rows, faults: &mut Vec<String>) {
    let mut held: BTreeMap<(&str, i64), &Slot> = BTreeMap::new();
    for slot in &rows.slots {
        let Some((id, fence)) = &slot.holder else { continue };
        let before = held.insert((id, *fence), slot);
        rule!(faults, before.is_none(), "{slot:?}: its item holds another slot too");
        let runs = |item: &&Item| item.is_running() && item.id == *id && item.fence == *fence;
        let holder = rows.items.iter().find(runs);
        rule!(faults, holder.is_some(), "{slot:?}: leaked, for no such run goes on");
        let is_own = holder.is_none_or(|item| item.family() == slot.family);
        rule!(faults, is_own, "{slot:?}: held by another family");
    }
    for item in rows.items.iter().filter(|item| item.is_running()) {
        let has_cap = rows.slots.iter().any(|slot| slot.family == item.family());
        let holds = held.contains_key(&(item.id.as_str(), item.fence));
        rule!(faults, holds || !has_cap, "{item:?}: runs without a slot of its family");
    }
}
