CREATE INDEX ix_pc_work_items_created ON pc_work_items (created_at, work_id)
