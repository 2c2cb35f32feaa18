//! The Work Ledger: one use case a file, each one transaction around the pure decisions of the core.
