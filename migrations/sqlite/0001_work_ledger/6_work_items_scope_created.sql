CREATE INDEX ix_pc_work_items_scope_created ON pc_work_items (scope_id, created_at, work_id)
