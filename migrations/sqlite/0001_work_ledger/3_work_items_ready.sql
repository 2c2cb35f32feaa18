CREATE INDEX ix_pc_work_items_ready ON pc_work_items (kind, payload_version, ready_at)
