//! The only place that spawns, sleeps or reads a clock.
//!
//! The operator's decisions take the time as an argument; what is read here only drives waiting, back-off and metrics, and
//! the times that Kubernetes stores in conditions.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Starts a task.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::spawn(future)
}

/// Waits for a span.
pub async fn sleep(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::time::sleep(span).await;
}

/// Gives a future a span; `None` when it is over first, and the future is dropped.
pub async fn within<F: Future>(span: Duration, future: F) -> Option<F::Output> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::time::timeout(span, future).await.ok()
}

/// Monotonic time, meaningless outside this process.
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    Instant::now()
}

/// Time of day, to the second, as conditions and leases hold it.
pub fn time_of_day() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
