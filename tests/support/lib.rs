//! Servers and helpers the suites share.
