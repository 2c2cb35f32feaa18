//! Checks and generators of this repository.
fn main() {}
