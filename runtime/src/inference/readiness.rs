//! Whether the model provider works, without asking it at every health check.
//!
//! An answer is kept for five minutes, a passing failure for half a minute. Callers that come while a probe runs wait for
//! its answer instead of sending another. While a worker's gate is closed the status is held: what its runs met counts
//! more than what a health check's probe would. Process time decides, for nothing durable depends on it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Generator, InferenceError};
use crate::rt;

/// How long an answer is kept.
pub const KEEP: Duration = Duration::from_mins(5);
/// How long a failure that may pass is kept.
pub const KEEP_TRANSIENT: Duration = Duration::from_secs(30);
/// Longest probe of a health check.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest probe of a gate: a provider that takes so long to load its model is back nevertheless.
pub const REFRESH_TIMEOUT: Duration = Duration::from_secs(30);

/// What a health check says of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderStatus {
    /// It answers.
    Ready,
    /// It did not answer in time.
    Timeout,
    /// It cannot be reached, or is busy or broken.
    Unavailable,
    /// It refuses our key, model, address or settings.
    Misconfigured,
}

impl ProviderStatus {
    /// The name in a readiness response.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Misconfigured => "misconfigured",
        }
    }

    fn of(answer: Result<(), InferenceError>) -> Self {
        match answer {
            Ok(()) => Self::Ready,
            Err(InferenceError::Timeout) => Self::Timeout,
            Err(InferenceError::Unavailable) => Self::Unavailable,
            Err(InferenceError::Rejected | InferenceError::InvalidOutput) => Self::Misconfigured,
        }
    }

    const fn keep(self) -> Duration {
        match self {
            Self::Ready | Self::Misconfigured => KEEP,
            Self::Timeout | Self::Unavailable => KEEP_TRANSIENT,
        }
    }
}

/// How long a known status holds.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// Until then.
    At(Instant),
    /// Until a refresh finds the provider ready.
    Refreshed,
}

/// A provider with its last known status.
pub struct Readiness {
    generator: Arc<dyn Generator>,
    probe_timeout: Duration,
    last: Mutex<Option<(ProviderStatus, Until)>>,
    // Held over a probe: that is what makes concurrent ones one.
    probing: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl Readiness {
    /// Knows nothing yet.
    pub fn new(generator: Arc<dyn Generator>) -> Self {
        Self {
            generator,
            probe_timeout: PROBE_TIMEOUT,
            last: Mutex::new(None),
            probing: tokio::sync::Mutex::new(()),
        }
    }

    /// The status, probed if none is known or the known one is too old.
    pub async fn status(&self) -> ProviderStatus {
        self.status_by(rt::now).await
    }

    async fn status_by(&self, now: impl Fn() -> Instant) -> ProviderStatus {
        if let Some(known) = self.known(now()) {
            return known;
        }
        let _probing = self.probing.lock().await;
        // Whoever probed meanwhile has the answer.
        if let Some(known) = self.known(now()) {
            return known;
        }
        let status = self.probe(self.probe_timeout).await;
        self.keep(status, now());
        self.known(now()).unwrap_or(status)
    }

    /// Probes now, whatever is known, and keeps the answer: for the gate that waits for a provider to come back.
    pub async fn refresh(&self) -> ProviderStatus {
        let _probing = self.probing.lock().await;
        let status = self.probe(REFRESH_TIMEOUT).await;
        let is_held = matches!(*self.last(), Some((_, Until::Refreshed)));
        if is_held && status != ProviderStatus::Ready {
            self.hold(status);
        } else {
            *self.last() = Some((status, Until::At(rt::now() + status.keep())));
        }
        status
    }

    /// Says `status`, without probing, until a [`Readiness::refresh`] finds the provider ready.
    pub fn hold(&self, status: ProviderStatus) {
        *self.last() = Some((status, Until::Refreshed));
    }

    fn known(&self, now: Instant) -> Option<ProviderStatus> {
        match *self.last() {
            Some((status, Until::Refreshed)) => Some(status),
            Some((status, Until::At(end))) if now < end => Some(status),
            _ => None,
        }
    }

    /// Keeps what a health check's probe found, unless a gate has closed meanwhile.
    fn keep(&self, status: ProviderStatus, now: Instant) {
        let mut last = self.last();
        if !matches!(*last, Some((_, Until::Refreshed))) {
            *last = Some((status, Until::At(now + status.keep())));
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<(ProviderStatus, Until)>> {
        // No code panics under this lock, so what it guards is whole.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn probe(&self, timeout: Duration) -> ProviderStatus {
        let answer = rt::within(timeout, self.generator.probe()).await;
        ProviderStatus::of(answer.unwrap_or(Err(InferenceError::Timeout)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use tokio::sync::Notify;

    use super::*;
    use crate::inference::{Generation, GenerationRequest};

    /// Answers probes from a list and counts them; the first waits for `go`, if there is one.
    struct Scripted {
        answers: Vec<Result<(), InferenceError>>,
        asked: AtomicUsize,
        go: Option<Notify>,
    }

    #[async_trait]
    impl Generator for Scripted {
        async fn generate(&self, _: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
            Err(InferenceError::Rejected)
        }

        async fn probe(&self) -> Result<(), InferenceError> {
            let n = self.asked.fetch_add(1, Ordering::SeqCst);
            if let Some(go) = self.go.as_ref().filter(|_| n == 0) {
                go.notified().await;
            }
            self.answers.get(n).copied().unwrap_or(Ok(()))
        }
    }

    fn scripted(answers: &[Result<(), InferenceError>], go: Option<Notify>) -> (Arc<Scripted>, Readiness) {
        let generator = Arc::new(Scripted {
            answers: answers.to_vec(),
            asked: AtomicUsize::new(0),
            go,
        });
        let readiness = Readiness::new(generator.clone());
        (generator, readiness)
    }

    #[tokio::test]
    async fn an_answer_is_kept_five_minutes_and_a_passing_failure_half_a_minute() {
        use InferenceError::{InvalidOutput, Rejected, Timeout, Unavailable};
        let start = rt::now();
        let after = |seconds| move || start + Duration::from_secs(seconds);
        for (answer, status, keep) in [
            (Ok(()), ProviderStatus::Ready, 300),
            (Err(Rejected), ProviderStatus::Misconfigured, 300),
            (Err(InvalidOutput), ProviderStatus::Misconfigured, 300),
            (Err(Timeout), ProviderStatus::Timeout, 30),
            (Err(Unavailable), ProviderStatus::Unavailable, 30),
        ] {
            let (generator, readiness) = scripted(&[answer], None);
            assert_eq!(readiness.status_by(after(0)).await, status);
            assert_eq!(readiness.status_by(after(keep - 1)).await, status);
            assert_eq!(generator.asked.load(Ordering::SeqCst), 1, "{answer:?}");
            assert_eq!(readiness.status_by(after(keep)).await, ProviderStatus::Ready);
            assert_eq!(generator.asked.load(Ordering::SeqCst), 2, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn concurrent_refreshes_send_one_probe() {
        let (generator, readiness) = scripted(&[], Some(Notify::new()));
        let readiness = Arc::new(readiness);
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let readiness = readiness.clone();
                rt::spawn(async move { readiness.status().await })
            })
            .collect();
        generator.go.as_ref().expect("scripted").notify_one();
        for answer in asking {
            assert_eq!(answer.await.expect("no panic"), ProviderStatus::Ready);
        }
        assert_eq!(generator.asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_provider_that_hangs_is_given_up() {
        let (_, mut readiness) = scripted(&[], Some(Notify::new()));
        readiness.probe_timeout = Duration::from_millis(20);
        assert_eq!(readiness.status().await, ProviderStatus::Timeout);
    }

    #[tokio::test]
    async fn a_refresh_asks_again_whatever_is_known() {
        let (_, readiness) = scripted(&[Err(InferenceError::Rejected), Ok(())], None);
        assert_eq!(readiness.status().await, ProviderStatus::Misconfigured);
        assert_eq!(readiness.refresh().await, ProviderStatus::Ready);
        assert_eq!(readiness.status().await, ProviderStatus::Ready);
    }

    #[tokio::test]
    async fn a_held_status_stays_without_a_probe_until_a_refresh_finds_the_provider_ready() {
        let (generator, readiness) = scripted(&[Err(InferenceError::Timeout), Ok(())], None);
        let late = || rt::now() + Duration::from_hours(1);
        readiness.hold(ProviderStatus::Unavailable);
        assert_eq!(readiness.status_by(late).await, ProviderStatus::Unavailable);
        assert_eq!(generator.asked.load(Ordering::SeqCst), 0);
        assert_eq!(readiness.refresh().await, ProviderStatus::Timeout);
        assert_eq!(readiness.status_by(late).await, ProviderStatus::Timeout);
        assert_eq!(generator.asked.load(Ordering::SeqCst), 1);
        assert_eq!(readiness.refresh().await, ProviderStatus::Ready);
        assert_eq!(readiness.status().await, ProviderStatus::Ready);
        assert_eq!(generator.asked.load(Ordering::SeqCst), 2);
    }
}
