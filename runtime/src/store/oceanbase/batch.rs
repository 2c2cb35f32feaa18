//! Packets of the ledger for OceanBase: the only place where a text is put together (ADR 0017). Values go in through
//! [`Packet`], which knows integers, times and hex literals and nothing else.
//!
//! Rows are named by the primary key, so that the engine looks each up and locks it in the order of the list. A guard is
//! part of the WHERE; whoever sends the packet compares the counts.

mod claim;

use powercontext_core::digest::LaneKey;
use powercontext_core::ids::BindingName;
use powercontext_core::time::DbTime;

use crate::store::batch::{Admitted, Asked, FinishRow, SettleRow, SlotRow};
use crate::store::packet::{Packet, Touches, pad};

pub(crate) use claim::{claim, lock_candidates, lock_slots, ready};

/// Locks lanes that nobody else has.
pub(crate) fn lock_lanes(lanes: &[&LaneKey]) -> Packet {
    let mut packet = Packet::default();
    lanes_free(&mut packet, lanes);
    packet
}

fn lanes_free(packet: &mut Packet, lanes: &[&LaneKey]) {
    packet.statement("-- lanes.lock_many\nSELECT lane_key FROM pc_work_lanes WHERE lane_key IN (");
    packet.padded(lanes, |packet, lane| {
        packet.id(lane.as_str());
    });
    packet.sql(")\nFOR UPDATE SKIP LOCKED");
}

/// Usual ends, in the lock order, then what the caller needs to know.
pub(crate) fn finish(rows: &[FinishRow<'_>], slots: &[SlotRow<'_>]) -> Packet {
    let mut packet = Packet::default();
    packet.statement(
        "-- lanes.leave_many\nUPDATE pc_work_lanes SET head_sequence = NULL
WHERE (lane_key, head_sequence, next_sequence) IN (",
    );
    packet.padded(rows, |packet, row| {
        let seq = row.usual.seq();
        packet.sql("(").id(row.lane.as_str()).sql(", ").count(seq.get());
        packet.sql(", ").count(seq.next().get()).sql(")");
    });
    packet.sql(")");
    items(&mut packet, rows);
    packet.statement(
        "-- attempts.close_many\nUPDATE pc_work_attempts
SET finished_at = UTC_TIMESTAMP(6), heartbeat_at = UTC_TIMESTAMP(6), outcome = 'succeeded', error_category = NULL,
    error_code = NULL
WHERE (work_id, attempt_no, owner_id, fence) IN (",
    );
    packet.padded(rows, |packet, row| {
        packet.sql("(").id(&row.id().to_string()).sql(", ");
        packet.int(row.usual.attempt().get().into()).sql(", ");
        held(packet, row);
    });
    packet.sql(") AND finished_at IS NULL");
    packet.statement("-- keys.delete_many\nDELETE FROM pc_work_keys WHERE (logical_key, work_id) IN (");
    packet.padded(rows, |packet, row| {
        packet
            .sql("(")
            .id(row.key.as_str())
            .sql(", ")
            .id(&row.id().to_string())
            .sql(")");
    });
    packet.sql(")");
    if !slots.is_empty() {
        packet.statement(
            "-- slots.give_back_many\nUPDATE pc_artifact_processing_slots SET work_id = NULL, fence = NULL
WHERE (family, slot_no, work_id, fence) IN (",
        );
        packet.padded(slots, |packet, row| {
            packet.sql("(").id(row.family.as_str()).sql(", ");
            packet.int(row.slot.get().into()).sql(", ").id(&row.id.to_string());
            packet.sql(", ").int(row.fence.to_row()).sql(")");
        });
        packet.sql(")");
    }
    packet.statement(
        "-- intents.there_many\nSELECT UTC_TIMESTAMP(6) AS now, COUNT(*) AS intents
FROM pc_artifact_processing_intents WHERE (binding_name, scope_id) IN (",
    );
    packet.padded(rows, |packet, row| {
        packet
            .sql("(")
            .id(row.binding.as_str())
            .sql(", ")
            .id(row.scope.as_str())
            .sql(")");
    });
    packet.sql(")");
    packet
}

/// Owner and fence, and the end of a row.
fn held(packet: &mut Packet, row: &FinishRow<'_>) {
    let holder = row.usual.holder();
    packet
        .id(holder.member.as_str())
        .sql(", ")
        .int(holder.fence.to_row())
        .sql(")");
}

fn items(packet: &mut Packet, rows: &[FinishRow<'_>]) {
    packet.statement(
        "-- works.finish_many\nUPDATE pc_work_items
SET status = 'succeeded', available_at = UTC_TIMESTAMP(6), ready_at = NULL, lease_owner = NULL, lease_expires_at = NULL,
    conflict_streak = 0, cancel_requested = 0, claimed_request_generation = NULL, claimed_dirty = NULL,
    error_category = NULL, error_code = NULL, state_version = state_version + 1, updated_at = UTC_TIMESTAMP(6),
    completed_at = UTC_TIMESTAMP(6), result_code = CASE work_id",
    );
    for row in pad(rows) {
        packet
            .sql(" WHEN ")
            .id(&row.id().to_string())
            .sql(" THEN ")
            .id(row.code);
    }
    packet.sql(" END, result_payload = CASE work_id");
    for row in pad(rows) {
        packet
            .sql(" WHEN ")
            .id(&row.id().to_string())
            .sql(" THEN ")
            .bytes(row.result);
    }
    packet.sql(" END\nWHERE (work_id, state_version, lease_owner, lease_fence) IN (");
    packet.padded(rows, |packet, row| {
        packet
            .sql("(")
            .id(&row.id().to_string())
            .sql(", ")
            .count(row.usual.claimed().version)
            .sql(", ");
        held(packet, row);
    });
    packet.sql(") AND status = 'running' AND (lease_expires_at IS NULL OR lease_expires_at > UTC_TIMESTAMP(6))");
}

/// Acknowledges and settles intents whose lanes are empty.
pub(crate) fn settle(rows: &[&SettleRow<'_>]) -> Packet {
    let mut packet = Packet::default();
    packet.statement(
        "-- intents.settle_many\nUPDATE pc_artifact_processing_intents
SET handled_generation = requested_generation, clean_generation = GREATEST(clean_generation, LEAST(dirty_generation, CASE",
    );
    for row in pad(rows) {
        packet
            .sql(" WHEN binding_name = ")
            .id(row.binding.as_str())
            .sql(" AND scope_id = ")
            .id(row.scope.as_str());
        packet.sql(" THEN ").count(row.clean());
    }
    packet.sql(" ELSE 0 END))\nWHERE (binding_name, scope_id) IN (");
    packet.padded(rows, |packet, row| {
        packet
            .sql("(")
            .id(row.binding.as_str())
            .sql(", ")
            .id(row.scope.as_str())
            .sql(")");
    });
    packet.sql(")");
    packet
}

fn now(packet: &mut Packet) {
    packet.statement("-- clock.now_many\nSELECT UTC_TIMESTAMP(6) AS now");
}

/// What is pending, and which rows of lanes and intents are there.
pub(crate) fn pending(binding: &BindingName, asked: &[Asked<'_>]) -> Packet {
    let mut packet = Packet::default();
    now(&mut packet);
    packet
        .statement("-- sources.head_many\nSELECT scope_id, position FROM pc_source_journal_heads WHERE scope_id IN (");
    packet.padded(asked, |packet, one| {
        packet.id(one.scope.as_str());
    });
    packet.sql(")");
    cursors(&mut packet, binding, asked);
    packet.statement(
        "-- lanes.get_many\nSELECT lane_key, head_sequence, next_sequence FROM pc_work_lanes WHERE lane_key IN (",
    );
    packet.padded(asked, |packet, one| {
        packet.id(one.lane.as_str());
    });
    packet.sql(")");
    packet.statement("-- intents.get_many\n");
    intents(&mut packet, binding, asked);
    packet
}

fn cursors(packet: &mut Packet, binding: &BindingName, asked: &[Asked<'_>]) {
    packet.statement(
        "-- cursors.get_many\nSELECT scope_id, sequence FROM pc_source_cursors WHERE (scope_id, binding_name) IN (",
    );
    packet.padded(asked, |packet, one| {
        packet
            .sql("(")
            .id(one.scope.as_str())
            .sql(", ")
            .id(binding.as_str())
            .sql(")");
    });
    packet.sql(")");
}

fn intents(packet: &mut Packet, binding: &BindingName, asked: &[Asked<'_>]) {
    packet.sql(
        "SELECT scope_id, dirty_generation, clean_generation, requested_generation, handled_generation
FROM pc_artifact_processing_intents WHERE (binding_name, scope_id) IN (",
    );
    packet.padded(asked, |packet, one| {
        packet
            .sql("(")
            .id(binding.as_str())
            .sql(", ")
            .id(one.scope.as_str())
            .sql(")");
    });
    packet.sql(")");
}

/// Makes missing lanes and intents and locks all of them. Answers, behind what was made: lanes, their live items, cursors,
/// intents.
pub(crate) fn lock_asked(
    binding: &BindingName,
    asked: &[Asked<'_>],
    new_lanes: &[Asked<'_>],
    new_intents: &[Asked<'_>],
) -> Packet {
    let mut packet = Packet::default();
    if !new_lanes.is_empty() {
        packet.statement(
            "-- lanes.create_many\nINSERT INTO pc_work_lanes (lane_key, head_sequence, next_sequence)\nVALUES ",
        );
        packet.list(new_lanes, |packet, one| {
            packet.sql("(").id(one.lane.as_str()).sql(", NULL, 1)");
        });
        packet.sql("\nON DUPLICATE KEY UPDATE lane_key = lane_key");
    }
    let lanes = |packet: &mut Packet| {
        packet.padded(asked, |packet, one| {
            packet.id(one.lane.as_str());
        });
    };
    packet.statement(
        "-- lanes.lock_all\nSELECT lane_key, head_sequence, next_sequence FROM pc_work_lanes WHERE lane_key IN (",
    );
    lanes(&mut packet);
    packet.sql(")\nFOR UPDATE");
    packet.statement(
        "-- works.live_many\nSELECT /*+ LEADING(l w) USE_NL(w) INDEX(w uq_pc_work_items_lane_sequence) */ w.*
FROM pc_work_lanes l JOIN pc_work_items w ON w.lane_key = l.lane_key AND w.lane_sequence >= l.head_sequence
WHERE w.status NOT IN ('succeeded', 'cancelled') AND l.lane_key IN (",
    );
    lanes(&mut packet);
    packet.sql(")\nORDER BY w.lane_key, w.lane_sequence");
    cursors(&mut packet, binding, asked);
    if !new_intents.is_empty() {
        packet.statement(
            "-- intents.create_many\nINSERT INTO pc_artifact_processing_intents (binding_name, scope_id)\nVALUES ",
        );
        packet.list(new_intents, |packet, one| {
            packet
                .sql("(")
                .id(binding.as_str())
                .sql(", ")
                .id(one.scope.as_str())
                .sql(")");
        });
        packet.sql("\nON DUPLICATE KEY UPDATE binding_name = binding_name");
    }
    packet.statement("-- intents.lock_many\n");
    intents(&mut packet, binding, asked);
    packet.sql("\nFOR UPDATE");
    packet
}

/// New items with their lanes and keys, and `requested` raised; and how many rows each statement touches.
pub(crate) fn admit(binding: &BindingName, admitted: &Admitted<'_>, now: DbTime) -> (Packet, Vec<Touches>) {
    let mut packet = Packet::default();
    let (created, raised) = (admitted.created.len() as u64, admitted.raised.len() as u64);
    let mut touches = Vec::with_capacity(4);
    if created > 0 {
        insert_items(&mut packet, admitted, now);
        packet.statement(
            "-- lanes.extend_many\nUPDATE pc_work_lanes
SET head_sequence = COALESCE(head_sequence, next_sequence), next_sequence = next_sequence + 1
WHERE (lane_key, next_sequence) IN (",
        );
        packet.padded(&admitted.created, |packet, (new, _)| {
            packet
                .sql("(")
                .id(new.lane_key.as_str())
                .sql(", ")
                .count(new.seq.get())
                .sql(")");
        });
        packet.sql(")");
        packet.statement(
            "-- keys.put_many\nINSERT INTO pc_work_keys (logical_key, work_id, lane_key, created_at)\nVALUES ",
        );
        packet.list(&admitted.created, |packet, (new, _)| {
            packet
                .sql("(")
                .id(new.logical_key.as_str())
                .sql(", ")
                .id(&new.id.to_string())
                .sql(", ");
            packet.id(new.lane_key.as_str()).sql(", ").time(now).sql(")");
        });
        packet.sql("\nON DUPLICATE KEY UPDATE work_id = VALUES(work_id)");
        // A key that is there already counts twice.
        touches.extend([created..=created, created..=created, created..=created * 2]);
    }
    packet.statement(
        "-- intents.raise_many\nUPDATE pc_artifact_processing_intents SET requested_generation = requested_generation + 1
WHERE (binding_name, scope_id) IN (",
    );
    packet.padded(&admitted.raised, |packet, scope| {
        packet
            .sql("(")
            .id(binding.as_str())
            .sql(", ")
            .id(scope.as_str())
            .sql(")");
    });
    packet.sql(")");
    touches.push(raised..=raised);
    (packet, touches)
}

fn insert_items(packet: &mut Packet, admitted: &Admitted<'_>, now: DbTime) {
    packet.statement(
        "-- works.insert_many\nINSERT INTO pc_work_items (work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id,
                           payload, max_attempts, ready_at, status, available_at, created_at, updated_at)\nVALUES ",
    );
    packet.list(&admitted.created, |packet, (new, _)| {
        packet
            .sql("(")
            .id(&new.id.to_string())
            .sql(", ")
            .id(new.logical_key.as_str())
            .sql(", ");
        packet
            .id(new.lane_key.as_str())
            .sql(", ")
            .count(new.seq.get())
            .sql(", ")
            .id(new.kind.as_str())
            .sql(", ");
        packet
            .int(new.payload_version.into())
            .sql(", ")
            .id(new.scope.as_str())
            .sql(", ")
            .bytes(new.payload);
        match new.attempts_max {
            Some(max) => packet.sql(", ").int(max.into()),
            None => packet.sql(", NULL"),
        };
        packet.sql(", ");
        if new.is_head {
            packet.time(now);
        } else {
            packet.sql("NULL");
        }
        packet
            .sql(", 'queued', ")
            .time(now)
            .sql(", ")
            .time(now)
            .sql(", ")
            .time(now)
            .sql(")");
    });
}
