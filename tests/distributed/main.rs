//! A distributed deployment: the real server as API, Scheduler and Worker processes on OceanBase, with real signals.

mod caps;
mod clocks;
mod connections;
mod crowd;
mod ends;
mod examples;
mod fairness;
mod load;
mod modes;
mod observed;
mod outages;
mod rfc_recovery;
mod rfc_scheduling;
mod rfc_terms;
mod rig;
mod rights;
mod roles;
mod schedulers;
mod signs;
mod stage;
mod window;
mod workers;
