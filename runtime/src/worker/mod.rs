//! Claiming and running work.
