CREATE TABLE pc_work_lanes (
  lane_key TEXT NOT NULL PRIMARY KEY,
  head_sequence INTEGER NULL,
  next_sequence INTEGER NOT NULL,
  CONSTRAINT ck_pc_work_lanes_head CHECK (head_sequence IS NULL OR head_sequence > 0),
  CONSTRAINT ck_pc_work_lanes_next CHECK (next_sequence > 0)
) STRICT
