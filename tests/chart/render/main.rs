//! The chart without a cluster: what it renders, what it refuses, and whether others would accept that.

mod conform;
mod golden;
mod monitoring;
mod rights;
mod values;
