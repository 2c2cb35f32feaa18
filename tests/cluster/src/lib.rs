//! What the tests of the operator stand on: a real control plane, the real operator as a process, and the two things that a
//! machine without nodes has to play: a kubelet that says what becomes of pods, and roles that answer on `/metrics`.
//!
//! Each test has a namespace of its own on one control plane, with `restricted` pod security enforced, and an operator of its
//! own that looks after that namespace alone, under a service account of its own. What the operator asked of the API server
//! is read from the API server's own audit log.

pub mod audit;
pub mod control_plane;
pub mod kubectl;
pub mod kubelet;
pub mod operator;
pub mod plugin;
pub mod roles;
pub mod stage;
pub mod wait;

/// A variable of the test environment.
pub(crate) fn env(key: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "what a test run hands to its suites are no settings of the product"
    )]
    std::env::var(key).ok().filter(|value| !value.is_empty())
}
