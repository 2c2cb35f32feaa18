CREATE TABLE pc_artifact_processing_slots (
  family VARBINARY(192) NOT NULL,
  slot_no BIGINT NOT NULL,
  work_id VARBINARY(144) NULL,
  fence BIGINT NULL,
  PRIMARY KEY (family, slot_no),
  CONSTRAINT ck_pc_artifact_processing_slots_number CHECK (slot_no > 0),
  CONSTRAINT ck_pc_artifact_processing_slots_holder CHECK ((work_id IS NULL) = (fence IS NULL))
)
