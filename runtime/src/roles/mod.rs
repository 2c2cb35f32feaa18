//! Which tasks a process runs, in which order they start and stop.
