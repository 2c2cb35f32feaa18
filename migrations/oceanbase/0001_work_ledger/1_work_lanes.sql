CREATE TABLE pc_work_lanes (
  lane_key VARBINARY(256) NOT NULL,
  head_sequence BIGINT NULL,
  next_sequence BIGINT NOT NULL,
  PRIMARY KEY (lane_key),
  CONSTRAINT ck_pc_work_lanes_head CHECK (head_sequence IS NULL OR head_sequence > 0),
  CONSTRAINT ck_pc_work_lanes_next CHECK (next_sequence > 0)
)
