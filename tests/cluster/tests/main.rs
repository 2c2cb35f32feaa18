//! The behaviour of the operator on a real API server. Names are sentences; each test has a namespace and an operator of its
//! own on one control plane, so they run side by side.

mod admission;
mod deletion;
mod leader;
mod migration;
mod modes;
mod names;
mod plugin;
mod rest;
mod rollout;
mod scale;
mod secrets;
mod status;
