//! Whether the model provider works, without asking it at every health check.
//!
//! An answer is kept for five minutes, a passing failure for half a minute. Callers that come while a probe runs wait for
//! its answer instead of sending another. Process time decides, for nothing durable depends on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Generator, InferenceError};
use crate::rt;

/// How long an answer is kept.
pub const KEEP: Duration = Duration::from_mins(5);
/// How long a failure that may pass is kept.
pub const KEEP_TRANSIENT: Duration = Duration::from_secs(30);
/// Longest probe.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

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

/// A provider with its last known status.
pub struct Readiness {
    generator: Arc<dyn Generator>,
    probe_timeout: Duration,
    // Held over the probe: that is what makes concurrent refreshes one.
    last: Mutex<Option<(ProviderStatus, Instant)>>,
}

impl Readiness {
    /// Knows nothing yet.
    pub fn new(generator: Arc<dyn Generator>) -> Self {
        Self {
            generator,
            probe_timeout: PROBE_TIMEOUT,
            last: Mutex::new(None),
        }
    }

    /// The status, probed if none is known or the known one is too old.
    pub async fn status(&self) -> ProviderStatus {
        self.status_by(rt::now).await
    }

    async fn status_by(&self, now: impl Fn() -> Instant) -> ProviderStatus {
        let mut last = self.last.lock().await;
        if let Some((status, until)) = *last
            && now() < until
        {
            return status;
        }
        let status = self.probe().await;
        *last = Some((status, now() + status.keep()));
        status
    }

    /// Probes now, whatever is known, and keeps the answer. For the gate that waits for a provider to come back.
    pub async fn refresh(&self) -> ProviderStatus {
        let mut last = self.last.lock().await;
        let status = self.probe().await;
        *last = Some((status, rt::now() + status.keep()));
        status
    }

    async fn probe(&self) -> ProviderStatus {
        let answer = rt::within(self.probe_timeout, self.generator.probe()).await;
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
}
