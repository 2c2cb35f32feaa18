//! SQLite texts of one consistency domain a row.

use crate::store::lanes::LanesSql;

pub(crate) const SQL: LanesSql = LanesSql {
    lock: "-- lanes.lock
SELECT lane_key, head_sequence, next_sequence FROM pc_work_lanes WHERE lane_key = ?",
    lock_skip: "-- lanes.lock_skip
SELECT lane_key, head_sequence, next_sequence FROM pc_work_lanes WHERE lane_key = ?",
    create: "-- lanes.create
INSERT INTO pc_work_lanes (lane_key, head_sequence, next_sequence)
VALUES (?, NULL, 1)
ON CONFLICT (lane_key) DO NOTHING",
    save: "-- lanes.save
UPDATE pc_work_lanes SET head_sequence = ?, next_sequence = ? WHERE lane_key = ?",
};
