CREATE TABLE pc_artifact_processing_slots (
  family TEXT NOT NULL,
  slot_no INTEGER NOT NULL,
  work_id TEXT NULL,
  fence INTEGER NULL,
  PRIMARY KEY (family, slot_no),
  CONSTRAINT ck_pc_artifact_processing_slots_number CHECK (slot_no > 0),
  CONSTRAINT ck_pc_artifact_processing_slots_holder CHECK ((work_id IS NULL) = (fence IS NULL))
) STRICT
