//! OceanBase texts of the acts of operators.

use crate::store::acts::ActsSql;

pub(crate) const SQL: ActsSql = ActsSql {
    record: "-- acts.record
INSERT INTO pc_work_acts (work_id, state_version, act, principal_type, principal_id, acted_at)
VALUES (?, ?, ?, ?, ?, ?)",
};
