//! A distributed deployment: the real server as API, Scheduler and Worker processes on OceanBase, with real signals.

mod caps;
mod fairness;
mod observed;
mod rfc_recovery;
mod rfc_scheduling;
mod rfc_terms;
mod rig;
mod schedulers;
mod stage;
mod window;
mod workers;
