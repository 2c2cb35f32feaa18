CREATE INDEX ix_pc_work_attempts_finished ON pc_work_attempts (finished_at)
