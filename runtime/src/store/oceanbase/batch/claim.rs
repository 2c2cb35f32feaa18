//! Packets of a claim: candidates and free slots, what it locks, what it writes.

use powercontext_core::digest::LaneKey;
use powercontext_core::fence::Fence;
use powercontext_core::ids::{BindingName, FamilyName, MemberId, WorkId};
use powercontext_core::time::DbTime;
use powercontext_core::work::SlotNo;

use super::{lanes_free, now};
use crate::store::admitted::WAITING_MAX;
use crate::store::batch::{ClaimRow, SlotRow, Wanted};
use crate::store::packet::{Packet, pad};
use crate::store::works::{Candidate, work_columns};

/// Candidates of all kinds in one answer, each with the number of its kind, and where they are wanted the ordinary items of a
/// kind with that number and the count of kinds, and the clock with a number beyond them; behind it the free slots of each kind
/// with a cap. One statement whatever is wanted, because an idle Worker asks again and again.
pub(crate) fn ready(wanted: &[Wanted]) -> Packet {
    let mut packet = Packet::default();
    packet.statement("-- works.ready_many\n");
    let mut union = "";
    for (number, wanted) in (0..).zip(wanted) {
        for version in wanted.versions.clone() {
            packet.sql(union).sql("(SELECT ").int(number);
            packet.sql(" AS number, work_id, lane_key, ready_at AS moment FROM pc_work_items WHERE kind = ");
            packet
                .id(wanted.kind.as_str())
                .sql(" AND payload_version = ")
                .int(version.into());
            packet
                .sql(" AND ready_at >= ")
                .time(wanted.from.unwrap_or(DbTime::from_micros(0)));
            packet
                .sql(" AND ready_at <= UTC_TIMESTAMP(6)\nORDER BY ready_at LIMIT ")
                .int(wanted.limit.into())
                .sql(")");
            union = "\nUNION ALL\n";
        }
    }
    for (number, wanted) in (wanted.len() as u64..).zip(wanted) {
        if let Some(binding) = &wanted.ordinary {
            // As it is hinted in `admitted`.
            packet
                .sql(union)
                .sql("(SELECT /*+ LEADING(a i) USE_NL(i) INDEX(i PRIMARY) */ ")
                .count(number);
            packet.sql(
                " AS number, i.work_id, i.lane_key, i.ready_at AS moment FROM pc_artifact_processing_admitted a
JOIN pc_work_items i ON i.work_id = a.work_id WHERE a.binding_name = ",
            );
            packet.id(binding.as_str()).sql(" AND i.payload_version BETWEEN ");
            packet
                .int((*wanted.versions.start()).into())
                .sql(" AND ")
                .int((*wanted.versions.end()).into());
            packet
                .sql(" AND i.status = 'queued' AND i.ready_at <= UTC_TIMESTAMP(6)\nORDER BY i.ready_at LIMIT ")
                .int(WAITING_MAX.into())
                .sql(")");
        }
    }
    packet.sql(union).sql("(SELECT ").count(wanted.len() as u64 * 2);
    packet.sql(" AS number, NULL AS work_id, NULL AS lane_key, UTC_TIMESTAMP(6) AS moment)");
    for wanted in wanted {
        if let Some((family, cap)) = &wanted.slots {
            packet.statement("-- slots.free_many\nSELECT slot_no FROM pc_artifact_processing_slots WHERE family = ");
            packet
                .id(family.as_str())
                .sql(" AND slot_no <= ")
                .int(cap.get().into())
                .sql(" AND work_id IS NULL ORDER BY slot_no");
        }
    }
    packet
}

/// Locks items whose lanes are locked, and then of each family those of its slots that are free and that nobody else has.
pub(crate) fn lock_slots(items: &[WorkId], wanted: &[(FamilyName, Vec<SlotNo>)]) -> Packet {
    let mut packet = Packet::default();
    packet.statement("-- works.lock_many\nSELECT work_id FROM pc_work_items WHERE work_id IN (");
    packet.padded(items, |packet, id| {
        packet.id(&id.to_string());
    });
    packet.sql(")\nFOR UPDATE");
    for (family, slots) in wanted {
        packet.statement("-- slots.lock_many\nSELECT slot_no FROM pc_artifact_processing_slots WHERE family = ");
        packet.id(family.as_str()).sql(" AND slot_no IN (");
        packet.padded(slots, |packet, slot| {
            packet.int(slot.get().into());
        });
        packet.sql(") AND work_id IS NULL\nFOR UPDATE SKIP LOCKED");
    }
    packet
}

/// Gives locked slots to items.
fn take_slots(packet: &mut Packet, slots: &[SlotRow<'_>]) {
    let case = |packet: &mut Packet, value: fn(&mut Packet, &SlotRow<'_>)| {
        for row in pad(slots) {
            packet
                .sql(" WHEN family = ")
                .id(row.family.as_str())
                .sql(" AND slot_no = ");
            packet.int(row.slot.get().into()).sql(" THEN ");
            value(packet, row);
        }
        packet.sql(" END");
    };
    packet.statement("-- slots.take_many\nUPDATE pc_artifact_processing_slots SET work_id = CASE");
    case(packet, |packet, row| {
        packet.id(&row.id.to_string());
    });
    packet.sql(", fence = CASE");
    case(packet, |packet, row| {
        packet.int(row.fence.to_row());
    });
    packet.sql("\nWHERE (family, slot_no) IN (");
    packet.padded(slots, |packet, row| {
        packet.sql("(").id(row.family.as_str()).sql(", ");
        packet.int(row.slot.get().into()).sql(")");
    });
    packet.sql(") AND work_id IS NULL");
}

/// Locks lanes that nobody else has, then reads the candidates and the clock.
pub(crate) fn lock_candidates(lanes: &[&LaneKey], pages: &[(&BindingName, Vec<Candidate>)]) -> Packet {
    let mut packet = Packet::default();
    lanes_free(&mut packet, lanes);
    for (binding, page) in pages {
        packet.statement(concat!(
            "-- works.claimable\nSELECT ",
            work_columns!(),
            ",
       (SELECT head_sequence FROM pc_work_lanes l WHERE l.lane_key = pc_work_items.lane_key) AS head_sequence,
       (SELECT requested_generation FROM pc_artifact_processing_intents i
        WHERE i.scope_id = pc_work_items.scope_id AND i.binding_name = "
        ));
        packet.id(binding.as_str()).sql(
            ") AS requested_generation,
       (SELECT dirty_generation FROM pc_artifact_processing_intents i
        WHERE i.scope_id = pc_work_items.scope_id AND i.binding_name = ",
        );
        packet.id(binding.as_str());
        packet.sql(") AS dirty_generation\nFROM pc_work_items\nWHERE work_id IN (");
        if page.is_empty() {
            // A kind without candidates beside one that has some: an empty list is no SQL, and no id is NULL.
            packet.sql("NULL");
        }
        packet.padded(page, |packet, one| {
            packet.id(&one.id.to_string());
        });
        packet.sql(")");
    }
    now(&mut packet);
    packet
}

/// Claims items, opens attempts of exactly those, and gives them their slots.
pub(crate) fn claim(rows: &[ClaimRow], slots: &[SlotRow<'_>], owner: &MemberId, expires: Option<DbTime>) -> Packet {
    let mut packet = Packet::default();
    packet.statement(
        "-- works.claim_many\nUPDATE pc_work_items
SET status = 'running', available_at = UTC_TIMESTAMP(6), ready_at = NULL, lease_fence = lease_fence + 1,
    attempt_count = attempt_count + 1, generation_attempt_count = generation_attempt_count + 1, cancel_requested = 0,
    result_code = NULL, result_payload = NULL, error_category = NULL, error_code = NULL,
    state_version = state_version + 1, updated_at = UTC_TIMESTAMP(6), completed_at = NULL, lease_owner = ",
    );
    packet.id(owner.as_str()).sql(", lease_expires_at = ");
    match expires {
        Some(at) => packet.time(at),
        None => packet.sql("NULL"),
    };
    packet.sql(", claimed_request_generation = CASE work_id");
    for row in pad(rows) {
        packet
            .sql(" WHEN ")
            .id(&row.after.id.to_string())
            .sql(" THEN ")
            .count(row.requested.get());
    }
    packet.sql(" END, claimed_dirty = CASE work_id");
    for row in pad(rows) {
        packet
            .sql(" WHEN ")
            .id(&row.after.id.to_string())
            .sql(" THEN ")
            .count(row.dirty.get());
    }
    packet.sql(" END\nWHERE (work_id, state_version) IN (");
    packet.padded(rows, |packet, row| {
        packet
            .sql("(")
            .id(&row.after.id.to_string())
            .sql(", ")
            .count(row.version)
            .sql(")");
    });
    packet.sql(") AND status IN ('queued', 'retry_wait')");
    packet.statement(
        "-- attempts.open_many\nINSERT INTO pc_work_attempts (work_id, attempt_no, recovery_generation, owner_id, fence,
                              started_at, heartbeat_at)
SELECT work_id, attempt_count, recovery_generation, lease_owner, lease_fence, updated_at, updated_at
FROM pc_work_items
WHERE (work_id, state_version, lease_fence) IN (",
    );
    packet.padded(rows, |packet, row| {
        packet
            .sql("(")
            .id(&row.after.id.to_string())
            .sql(", ")
            .count(row.after.version)
            .sql(", ");
        packet.int(row.after.fence.map_or(0, Fence::to_row)).sql(")");
    });
    packet
        .sql(") AND status = 'running' AND lease_owner = ")
        .id(owner.as_str());
    if !slots.is_empty() {
        take_slots(&mut packet, slots);
    }
    packet
}
