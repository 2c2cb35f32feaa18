CREATE INDEX ix_pc_work_items_completed ON pc_work_items (completed_at)
