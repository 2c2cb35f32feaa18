//! A distributed deployment: the real server as API, Scheduler and Worker processes on OceanBase, with real signals.

mod observed;
mod rig;
mod schedulers;
mod workers;
