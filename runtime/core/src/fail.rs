//! Why an attempt did not succeed: a closed set of (category, code) pairs. No text of an exception ever leaves a run.

use serde::{Deserialize, Serialize};

/// Failure of an attempt. The variant decides the retry; its two names are all that rows, logs and clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailCode {
    /// The stored payload does not decode.
    InvalidPayload,
    /// This deployment cannot run the family: no model is configured.
    FamilyUnavailable,
    /// Another writer moved the cursor; the window must be planned anew.
    CursorChanged,
    /// Another writer moved the artifact's head; the window must be planned anew.
    HeadChanged,
    /// Journal rows of the window are gone.
    SourceWindowUnavailable,
    /// The provider did not answer in time.
    ProviderTimeout,
    /// The provider could not be reached or answered that it is busy.
    ProviderUnavailable,
    /// The provider refused the request: wrong key, model or settings.
    ProviderRejected,
    /// The model's answer breaks the contract it was given.
    ProviderInvalidOutput,
    /// The run took longer than its family allows.
    WorkerTimeout,
    /// The run ended without saying what became of it.
    MissingDurableAcknowledgement,
    /// The holder's lease ran out.
    LeaseExpired,
    /// An operator asked for the end of the run.
    CancelRequested,
    /// Anything unforeseen.
    Unhandled,
    /// Stored by a newer build; this one does not know the pair.
    Unrecognised,
}

impl FailCode {
    /// Every code, for labels and tests.
    pub const ALL: [Self; 15] = [
        Self::InvalidPayload,
        Self::FamilyUnavailable,
        Self::CursorChanged,
        Self::HeadChanged,
        Self::SourceWindowUnavailable,
        Self::ProviderTimeout,
        Self::ProviderUnavailable,
        Self::ProviderRejected,
        Self::ProviderInvalidOutput,
        Self::WorkerTimeout,
        Self::MissingDurableAcknowledgement,
        Self::LeaseExpired,
        Self::CancelRequested,
        Self::Unhandled,
        Self::Unrecognised,
    ];

    /// The bounded class, at most 64 characters.
    pub const fn category(self) -> &'static str {
        match self {
            Self::InvalidPayload => "payload",
            Self::FamilyUnavailable => "configuration",
            Self::CursorChanged | Self::HeadChanged => "conflict",
            Self::SourceWindowUnavailable => "retention",
            Self::ProviderTimeout
            | Self::ProviderUnavailable
            | Self::ProviderRejected
            | Self::ProviderInvalidOutput => "provider",
            Self::WorkerTimeout | Self::MissingDurableAcknowledgement => "processing",
            Self::LeaseExpired => "lease",
            Self::CancelRequested => "cancellation",
            Self::Unhandled | Self::Unrecognised => "internal",
        }
    }

    /// The bounded code inside the class, at most 128 characters.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidPayload => "invalid_payload",
            Self::FamilyUnavailable => "family_unavailable",
            Self::CursorChanged => "cursor_changed",
            Self::HeadChanged => "head_changed",
            Self::SourceWindowUnavailable => "source_window_unavailable",
            Self::ProviderTimeout => "timeout",
            Self::ProviderUnavailable => "unavailable",
            Self::ProviderRejected => "rejected",
            Self::ProviderInvalidOutput => "invalid_output",
            Self::WorkerTimeout => "worker_timeout",
            Self::MissingDurableAcknowledgement => "missing_durable_acknowledgement",
            Self::LeaseExpired => "lease_expired",
            Self::CancelRequested => "cancel_requested",
            Self::Unhandled => "unhandled_handler_error",
            Self::Unrecognised => "unrecognised",
        }
    }

    /// Whether another attempt can help without anybody changing anything.
    pub const fn is_retryable(self) -> bool {
        !matches!(
            self,
            Self::InvalidPayload
                | Self::FamilyUnavailable
                | Self::SourceWindowUnavailable
                | Self::ProviderRejected
                | Self::CancelRequested
        )
    }

    /// Reads a stored pair; one that a newer build wrote becomes [`FailCode::Unrecognised`].
    pub fn from_row(category: &str, code: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|c| c.category() == category && c.code() == code)
            .unwrap_or(Self::Unrecognised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_unique_and_reads_back() {
        for code in FailCode::ALL {
            assert_eq!(FailCode::from_row(code.category(), code.code()), code);
        }
        assert_eq!(FailCode::from_row("provider", "of_the_future"), FailCode::Unrecognised);
    }
}
