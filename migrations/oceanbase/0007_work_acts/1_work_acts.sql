CREATE TABLE pc_work_acts (
  work_id VARBINARY(144) NOT NULL,
  state_version BIGINT NOT NULL,
  act VARBINARY(64) NOT NULL,
  principal_type VARBINARY(256) NOT NULL,
  principal_id VARBINARY(1020) NOT NULL,
  acted_at DATETIME(6) NOT NULL,
  PRIMARY KEY (work_id, state_version),
  CONSTRAINT ck_pc_work_acts_act CHECK (act IN ('cancel', 'retry')),
  CONSTRAINT ck_pc_work_acts_version CHECK (state_version > 0)
)
