//! The only place that spawns, sleeps, reads a process clock or draws a random number.
//!
//! A simulation replaces this module's behaviour by running on one thread with paused time; code that went around it
//! would escape. Process time is for back-off, progress and metrics, never for leases (`core::time`).

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use powercontext_core::ids::{MemberId, WorkId};
use powercontext_core::work::retry::Jitter;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

/// Starts a task.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::spawn(future)
}

/// Starts a thread for work that blocks.
///
/// # Errors
/// When the machine gives no more threads.
pub fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Why a future was not run to its end on a thread of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It waits for something, which it was not allowed to.
    Waits,
    /// The moment came first.
    Elapsed,
}

/// Runs a future on this thread, which is none of a runtime. Most that come here never wait for anything; one that does has
/// the runtime to wait with, until `wait_until`.
///
/// # Errors
/// [`Stopped`]; the future is dropped.
pub fn run_here<F: Future>(runtime: &Handle, wait_until: Option<Instant>, future: F) -> Result<F::Output, Stopped> {
    let mut future = pin!(future);
    let entered = runtime.enter();
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(output);
    }
    drop(entered);
    let until = wait_until.ok_or(Stopped::Waits)?;
    runtime.block_on(async {
        tokio::time::timeout_at(until, future)
            .await
            .map_err(|_| Stopped::Elapsed)
    })
}

/// Waits for a span of process time.
pub async fn sleep(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::time::sleep(span).await;
}

/// Waits until a moment of process time.
pub async fn sleep_until(moment: Instant) {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::time::sleep_until(moment).await;
}

/// Process time now; monotonic, meaningless outside this process.
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    Instant::now()
}

/// The machine's wall clock, for showing alone: it can be set back, and differs from machine to machine.
pub fn wall_clock() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    SystemTime::now()
}

/// A span was over before the future was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not done within its time")]
pub struct Elapsed;

/// Gives a future a span of process time. Never put a database future in here: dropping one leaves its connection in
/// the middle of a statement. `Db::tx` has its own deadline.
///
/// # Errors
/// [`Elapsed`] when the span is over first; the future is dropped.
pub async fn within<F: Future>(span: Duration, future: F) -> Result<F::Output, Elapsed> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    tokio::time::timeout(span, future).await.map_err(|_| Elapsed)
}

/// A number for one retry delay.
pub fn jitter() -> Jitter {
    Jitter(random())
}

/// A uniform random number.
pub fn random() -> u32 {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    rand::random()
}

/// A new work id; ids made later sort later.
pub fn work_id() -> WorkId {
    WorkId::new(Uuid::now_v7())
}

/// A number for an id that a planner makes: 128 bits, 122 of them random.
pub fn random_bits() -> u128 {
    Uuid::new_v4().as_u128()
}

/// 32 random hex digits, for names that only have to be unique.
pub fn hex_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// A member id for this process start.
pub fn member_id() -> MemberId {
    MemberId::parse(hex_id()).expect("32 hex digits are a member id")
}
