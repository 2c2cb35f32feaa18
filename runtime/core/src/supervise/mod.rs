//! Automatic admission: what is pending, and what has been acknowledged.

pub mod intent;
