//! The operator's speed and size against a real API server.

fn main() {}
