//! The migrator and the check at start, on real databases: SQLite files and schemas of the OceanBase server under test.

mod apply;
mod database;
mod search;
mod verify;
