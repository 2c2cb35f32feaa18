//! Entry point of the `powercontext` binary.
fn main() {}
