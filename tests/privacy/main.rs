//! Content and secrets stay where they belong (I17), metrics have closed labels (I18) and agree with the rows (I22).
//!
//! A random word is put into everything that a deployment is told or a client sends; then everything that the server says
//! or stores is searched for it. Where a word may stand is a list in `canary.rs`; a place that is not on it is a leak.

mod canary;
mod counts;
mod flow;
mod model;
mod requests;
mod settings;
