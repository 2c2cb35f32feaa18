//! The real server over HTTP with the model behind HTTP: what clients see of flushes, of a failing model, of bad input, and
//! of their own going away.

mod acts;
mod address;
mod crowd;
mod demo;
mod dropped;
mod faults;
mod flush;
mod input;
mod payloads;
mod privacy;
mod refused;
mod settings;
