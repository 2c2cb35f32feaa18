//! The `schema-migration` lease of OceanBase: one migrator at a time, and a late one changes nothing.
//!
//! Database time decides. The fence grows with every take-over, and each note of the migrator names it.

use sqlx::{MySqlConnection, Row as _};

use crate::store::error::{TxError, corrupt};
use crate::store::migrate::MigrateError;
use crate::store::schema::read::oceanbase;

const CREATE: &str = "-- migration_lease.create
INSERT INTO pc_scheduler_leases (lease_name, owner_id, fence, lease_expires_at, updated_at)
VALUES ('schema-migration', NULL, 0, NULL, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE fence = fence";

const ACQUIRE: &str = "-- migration_lease.acquire
UPDATE pc_scheduler_leases
SET owner_id = ?, fence = fence + 1, lease_expires_at = UTC_TIMESTAMP(6) + INTERVAL 600 SECOND, updated_at = UTC_TIMESTAMP(6)
WHERE lease_name = 'schema-migration'
  AND (owner_id IS NULL OR lease_expires_at IS NULL OR lease_expires_at <= UTC_TIMESTAMP(6))";

const READ: &str = "-- migration_lease.read
SELECT owner_id, fence, TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), lease_expires_at) AS seconds_left
FROM pc_scheduler_leases WHERE lease_name = 'schema-migration'";

const RENEW: &str = "-- migration_lease.renew
UPDATE pc_scheduler_leases
SET lease_expires_at = UTC_TIMESTAMP(6) + INTERVAL 600 SECOND, updated_at = UTC_TIMESTAMP(6)
WHERE lease_name = 'schema-migration' AND owner_id = ? AND fence = ? AND lease_expires_at > UTC_TIMESTAMP(6)";

const RELEASE: &str = "-- migration_lease.release
UPDATE pc_scheduler_leases
SET owner_id = NULL, lease_expires_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6)
WHERE lease_name = 'schema-migration' AND owner_id = ? AND fence = ?";

/// The lease, held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MigrationLease {
    pub(super) owner: String,
    pub(super) fence: i64,
}

/// Somebody else's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) owner: String,
    pub(super) seconds_left: i64,
}

/// Takes the lease if it is free.
pub(super) async fn acquire(
    conn: &mut MySqlConnection,
    owner: &str,
) -> Result<Result<MigrationLease, Holder>, TxError> {
    let fail = |error: sqlx::Error| oceanbase(&error);
    sqlx::query(CREATE).execute(&mut *conn).await.map_err(fail)?;
    let taken = sqlx::query(ACQUIRE)
        .bind(owner.as_bytes())
        .execute(&mut *conn)
        .await
        .map_err(fail)?;
    let row = sqlx::query(READ).fetch_one(&mut *conn).await.map_err(fail)?;
    let holder: Option<Vec<u8>> = row.try_get("owner_id").map_err(fail)?;
    let holder = holder
        .map_or(Ok(String::new()), String::from_utf8)
        .map_err(|_| corrupt("owner_id"))?;
    if taken.rows_affected() == 1 && holder == owner {
        return Ok(Ok(MigrationLease {
            owner: holder,
            fence: row.try_get("fence").map_err(fail)?,
        }));
    }
    let seconds_left: Option<i64> = row.try_get("seconds_left").map_err(fail)?;
    Ok(Err(Holder {
        owner: holder,
        seconds_left: seconds_left.unwrap_or(0),
    }))
}

impl MigrationLease {
    pub(super) async fn renew(&self, conn: &mut MySqlConnection) -> Result<(), MigrateError> {
        let renewed = sqlx::query(RENEW)
            .bind(self.owner.as_bytes())
            .bind(self.fence)
            .execute(conn)
            .await
            .map_err(|error| oceanbase(&error))?;
        if renewed.rows_affected() == 1 {
            Ok(())
        } else {
            Err(MigrateError::LeaseLost)
        }
    }

    /// Gives the lease back; if that does not arrive, it expires.
    pub(super) async fn release(&self, conn: &mut MySqlConnection) {
        let released = sqlx::query(RELEASE)
            .bind(self.owner.as_bytes())
            .bind(self.fence)
            .execute(conn)
            .await;
        if released.is_err() {
            tracing::warn!("the lease of the migration was not given back; it expires by itself");
        }
    }
}
