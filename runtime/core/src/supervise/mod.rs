//! Automatic admission: what is pending, when a family is checked, which scope is admitted, who may lead, and what has been
//! acknowledged.

pub mod admission;
pub mod fairness;
pub mod intent;
pub mod member;
pub mod mode;
pub mod scan;
