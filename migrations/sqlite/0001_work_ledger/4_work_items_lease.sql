CREATE INDEX ix_pc_work_items_lease ON pc_work_items (status, lease_expires_at)
