//! The pipeline.

pub mod build;
pub mod validate;
