//! Series exist from the start, count what they say, and stay bounded.

use powercontext_core::work::state::WorkState;

use super::*;

const MEMORY: &str = "powercontext.memory.source-window";

/// Value of the series that is written exactly so.
fn value(metrics: &Metrics, series: &str) -> Option<String> {
    let text = metrics.render();
    let line = text
        .lines()
        .find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
    line.and_then(|line| line.rsplit_once(' '))
        .map(|(_, value)| value.to_owned())
}

fn is(metrics: &Metrics, series: &str, expected: &str) {
    assert_eq!(value(metrics, series).as_deref(), Some(expected), "{series}");
}

#[test]
fn every_series_is_there_before_the_first_event_and_no_event_adds_one() {
    let metrics = Metrics::new([MEMORY]);
    let before = metrics.render().lines().count();
    for name in [
        "powercontext_work_enqueues_total",
        "powercontext_work_claim_latency_seconds",
        "powercontext_work_attempts_total",
        "powercontext_work_attempt_duration_seconds",
        "powercontext_work_lease_expirations_total",
        "powercontext_work_queue_depth",
        "powercontext_work_queue_oldest_age_seconds",
        "powercontext_server_transport_requests_total",
        "powercontext_server_transport_request_duration_seconds",
        "powercontext_server_transport_requests_in_progress",
        "powercontext_server_runtime_ready",
    ] {
        assert!(metrics.render().contains(&format!("# TYPE {name} ")), "{name}");
    }
    for kind in [MEMORY, "of.another.build"] {
        for outcome in Enqueue::ALL {
            metrics.enqueued(kind, outcome);
        }
        metrics.claimed(kind, Span::millis(3));
        for outcome in Outcome::ALL {
            metrics.attempt_ended(kind, outcome, None, Duration::from_secs(1));
            for code in FailCode::ALL {
                metrics.attempt_ended(kind, outcome, Some(code), Duration::from_secs(1));
            }
        }
        metrics.set_depths(LiveState::ALL.map(|state| QueueDepth {
            kind,
            status: state.as_str(),
            items: 1,
            oldest_age: Span::seconds(1),
        }));
    }
    for operation in HttpOperation::ALL {
        for outcome in RequestOutcome::ALL {
            metrics.request_started(Transport::Http, *operation).ended(outcome);
        }
    }
    metrics.set_ready(true);
    assert_eq!(metrics.render().lines().count(), before);
}

#[test]
fn an_attempt_counts_by_outcome_and_category_and_a_lost_lease_once_more() {
    let metrics = Metrics::new([MEMORY]);
    metrics.attempt_ended(MEMORY, Outcome::Succeeded, None, Duration::from_millis(40));
    let provider = Some(FailCode::ProviderTimeout);
    metrics.attempt_ended(MEMORY, Outcome::RetryWait, provider, Duration::from_secs(30));
    metrics.attempt_ended(
        MEMORY,
        Outcome::LeaseExpiredRetry,
        Some(FailCode::LeaseExpired),
        Duration::ZERO,
    );
    metrics.attempt_ended(
        MEMORY,
        Outcome::Cancelled,
        Some(FailCode::CancelRequested),
        Duration::ZERO,
    );
    let attempts = |outcome: &str, category: &str| {
        format!(
            "powercontext_work_attempts_total{{error_category=\"{category}\",kind=\"{MEMORY}\",outcome=\"{outcome}\"}}"
        )
    };
    is(&metrics, &attempts("succeeded", "none"), "1");
    is(&metrics, &attempts("retry_wait", "provider"), "1");
    is(&metrics, &attempts("lease_expired_retry", "lease"), "1");
    is(&metrics, &attempts("failed", "provider"), "0");
    let expired =
        |outcome: &str| format!("powercontext_work_lease_expirations_total{{kind=\"{MEMORY}\",outcome=\"{outcome}\"}}");
    is(&metrics, &expired("retry_wait"), "1");
    is(&metrics, &expired("failed"), "0");
    let sum = format!("powercontext_work_attempt_duration_seconds_sum{{kind=\"{MEMORY}\",outcome=\"retry_wait\"}}");
    is(&metrics, &sum, "30");
}

#[test]
fn a_queue_that_disappears_is_zero_and_unknown_kinds_are_summed() {
    let metrics = Metrics::new([MEMORY]);
    let depth = |kind, status, items, seconds| QueueDepth {
        kind,
        status,
        items,
        oldest_age: Span::seconds(seconds),
    };
    let series = |name: &str, kind: &str, status: &str| {
        format!("powercontext_work_{name}{{kind=\"{kind}\",status=\"{status}\"}}")
    };
    metrics.set_depths([
        depth(MEMORY, "queued", 3, 7),
        depth("a", "failed", 1, 5),
        depth("b", "failed", 2, 4),
        depth(MEMORY, "of_the_future", 9, 9),
    ]);
    is(&metrics, &series("queue_depth", MEMORY, "queued"), "3");
    is(&metrics, &series("queue_oldest_age_seconds", MEMORY, "queued"), "7");
    is(&metrics, &series("queue_depth", "other", "failed"), "3");
    is(&metrics, &series("queue_oldest_age_seconds", "other", "failed"), "5");
    metrics.set_depths([]);
    is(&metrics, &series("queue_depth", MEMORY, "queued"), "0");
    is(&metrics, &series("queue_oldest_age_seconds", "other", "failed"), "0");
}

#[test]
fn a_request_that_nobody_waits_for_counts_as_cancelled() {
    let metrics = Metrics::new([MEMORY]);
    let labels = "operation=\"flush_memory\",transport=\"http\"";
    let total = |outcome: &str| {
        format!(
            "powercontext_server_transport_requests_total{{operation=\"flush_memory\",outcome=\"{outcome}\",transport=\"http\"}}"
        )
    };
    let in_progress = format!("powercontext_server_transport_requests_in_progress{{{labels}}}");
    let answered = metrics.request_started(Transport::Http, HttpOperation::FlushMemory);
    let dropped = metrics.request_started(Transport::Http, HttpOperation::FlushMemory);
    is(&metrics, &in_progress, "2");
    answered.ended(RequestOutcome::of_status(202));
    drop(dropped);
    is(&metrics, &in_progress, "0");
    is(&metrics, &total("success"), "1");
    is(&metrics, &total("failure"), "0");
    is(&metrics, &total("cancelled"), "1");
}

#[test]
fn labels_of_states_are_the_stored_names() {
    let live: Vec<_> = LiveState::ALL.map(LiveState::as_str).into();
    let stored = WorkState::NAMES
        .iter()
        .filter(|name| !["succeeded", "cancelled"].contains(name));
    assert_eq!(live, stored.copied().collect::<Vec<_>>());
}

#[test]
fn an_operation_is_found_by_method_and_template() {
    assert_eq!(
        HttpOperation::of("GET", "/v1/operations/{operation_id}"),
        HttpOperation::GetOperation
    );
    assert_eq!(
        HttpOperation::of("POST", "/v1/operations/{operation_id}"),
        HttpOperation::Unmatched
    );
    assert_eq!(RequestOutcome::of_status(399), RequestOutcome::Success);
    assert_eq!(RequestOutcome::of_status(400), RequestOutcome::Failure);
}

#[test]
fn more_kinds_than_the_limit_share_one_series() {
    let kinds: Vec<_> = (0..=KINDS_MAX).map(|n| format!("kind-{n:02}")).collect();
    let metrics = Metrics::new(kinds.iter().map(String::as_str));
    let joined = |kind: &str| format!("powercontext_work_enqueues_total{{kind=\"{kind}\",outcome=\"joined\"}}");
    for kind in &kinds {
        metrics.enqueued(kind, Enqueue::Joined);
    }
    is(&metrics, &joined("kind-31"), "1");
    is(&metrics, &joined("other"), "1");
    assert_eq!(value(&metrics, &joined("kind-32")), None);
}
