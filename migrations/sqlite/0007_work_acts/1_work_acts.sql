CREATE TABLE pc_work_acts (
  work_id TEXT NOT NULL,
  state_version INTEGER NOT NULL,
  act TEXT NOT NULL,
  principal_type TEXT NOT NULL,
  principal_id TEXT NOT NULL,
  acted_at INTEGER NOT NULL,
  PRIMARY KEY (work_id, state_version),
  CONSTRAINT ck_pc_work_acts_act CHECK (act IN ('cancel', 'retry')),
  CONSTRAINT ck_pc_work_acts_version CHECK (state_version > 0)
) STRICT
