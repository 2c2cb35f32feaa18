//! Everything that touches the database.
//!
//! [`Db::tx`] and [`Db::read`] are the only doors. One module per aggregate binds, calls and decodes; its SQL stands in
//! `oceanbase/` and `sqlite/`, one file per aggregate and dialect, every text named in its first line. No function here
//! decides a transition: it writes what the core decided and checks how many rows that touched.

pub mod acts;
pub mod admitted;
pub mod artifacts;
mod ask;
pub mod attempts;
pub(crate) mod batch;
pub mod bindings;
mod conn;
pub mod cursors;
mod db;
pub(crate) mod error;
#[cfg(feature = "failpoints")]
pub mod failpoints;
pub mod intents;
pub mod keys;
pub mod lanes;
pub mod leases;
mod local;
mod locks;
pub mod members;
pub mod memory_entries;
pub mod migrate;
pub mod modes;
mod names;
pub(crate) mod notes;
mod oceanbase;
pub mod owner;
pub(crate) mod packet;
mod pool;
pub mod rates;
pub mod schema;
pub mod search_text;
pub mod slots;
pub mod sources;
pub mod spans;
pub mod sql;
mod sqlite;
pub mod standing;
mod tx;
pub mod upkeep;
mod url;
pub mod usage;
pub mod works;

pub use conn::{Dialect, Row, Value};
pub use db::{Db, DbLimits, OpenError};
pub use error::{Busy, Corrupt, Down, FenceLost, TxError};
pub use local::SqliteRow;
pub use names::TxName;
pub use tx::{Body, Tx, TxFuture};
pub use url::{DatabaseUrl, UrlFault};
