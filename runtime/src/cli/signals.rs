//! SIGTERM and SIGINT: the first asks the process to end in order, the second ends it at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::rt;

/// What a shell reports for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// What a shell reports for a process that SIGTERM ended.
const TERMINATED: i32 = 143;

/// A token that the first signal cancels. The second signal exits without waiting: whatever was running is recovered by
/// its lease, as after a crash.
///
/// # Errors
/// When the system does not let the process handle signals.
pub(super) fn shutdown() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let shutdown = token.clone();
    rt::spawn(async move {
        let (name, _) = next(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = name, "ending in order; a second signal ends at once");
        shutdown.cancel();
        let (name, code) = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "ending at once");
        std::process::exit(code);
    });
    Ok(token)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        biased;
        _ = terminate.recv() => ("SIGTERM", TERMINATED),
        _ = interrupt.recv() => ("SIGINT", INTERRUPTED),
    }
}
