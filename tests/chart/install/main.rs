//! The chart on a real API server: installed, upgraded and uninstalled by Helm, its operator run as a process with the
//! arguments and under the account that the chart gave it.
//!
//! Most tests have a namespace of their own and run side by side. Some change what belongs to the whole cluster, the
//! definition above all; those run alone ([`site::alone`]).

mod definition;
mod image;
mod pods;
mod rights;
mod site;
