//! Processes that are killed, stopped, started twice, or given a broken file or clock: what was acknowledged is there
//! afterwards, once, and every attempt has one end. Real processes, real signals, both engines.

mod backup;
mod child;
mod clocks;
mod drain;
mod files;
mod group;
mod kill;
mod kill_ends;
mod owner;
mod shipped;
mod story;
