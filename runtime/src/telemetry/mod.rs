//! Logs and metrics with closed fields and labels.
