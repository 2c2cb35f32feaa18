//! Everything that touches the database: connections, transactions, one module per aggregate.

pub mod search_text;
