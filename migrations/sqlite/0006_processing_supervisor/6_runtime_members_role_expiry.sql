CREATE INDEX ix_pc_runtime_members_role_expiry ON pc_runtime_members (role, expires_at)
