//! Spans as they are handed to the exporter.

use std::collections::BTreeSet;

use super::*;

fn tracer(size: usize) -> (Tracer, mpsc::Receiver<SpanData>) {
    let (queue, spans) = mpsc::channel(size);
    (Tracer::new(queue), spans)
}

#[tokio::test]
async fn a_span_below_another_is_of_its_trace_and_a_dropped_one_is_none() {
    let (tracer, mut spans) = tracer(8);
    let above = tracer.background(Name::WorkExecute).with(Attribute::Attempt(3));
    drop(above.child(Name::WorkRetry));
    let ids = above.ids().expect("recorded");
    above.child(Name::WorkCommit).end();
    above.end_failed("stale");
    let (below, above) = (spans.try_recv().expect("ended"), spans.try_recv().expect("ended"));
    assert!(spans.try_recv().is_err());
    assert_eq!(
        (below.name.as_ref(), above.name.as_ref()),
        ("work.commit", "work.execute")
    );
    assert_eq!(below.span_context.trace_id(), above.span_context.trace_id());
    assert_eq!(below.parent_span_id, above.span_context.span_id());
    assert_eq!(above.parent_span_id, SpanId::INVALID);
    assert_eq!(above.span_context.span_id().to_string(), ids.span_hex());
    assert_eq!(
        above.attributes,
        [
            KeyValue::new("powercontext.work.attempt", 3),
            KeyValue::new(OUTCOME, "stale")
        ]
    );
    assert_eq!((above.status, below.status), (Status::error(""), Status::Unset));
    assert!(below.end_time >= below.start_time);
}

#[tokio::test]
async fn a_client_is_followed_and_one_that_records_nothing_too() {
    let (tracer, mut spans) = tracer(8);
    let header = |flags| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
    let parent = Parent::from_header(&header("01"));
    tracer.stage(Name::WorkEnqueue, parent).end_as("created");
    let span = spans.try_recv().expect("ended");
    assert_eq!(
        span.span_context.trace_id().to_string(),
        "0af7651916cd43dd8448eb211c80319c"
    );
    assert_eq!(span.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(span.parent_span_is_remote);
    tracer
        .stage(Name::WorkEnqueue, Parent::from_header(&header("00")))
        .end();
    assert!(spans.try_recv().is_err());
    tracer.stage(Name::WorkEnqueue, None).end();
    assert_eq!(spans.try_recv().expect("ended").parent_span_id, SpanId::INVALID);
}

#[tokio::test]
async fn a_full_queue_loses_spans_and_counts_them() {
    let (tracer, mut spans) = tracer(1);
    for _ in 0..3 {
        tracer.tick(4).end_as("leader");
    }
    assert_eq!(tracer.dropped(), 2);
    let tick = spans.try_recv().expect("ended");
    assert_eq!(
        tick.attributes[0],
        KeyValue::new("powercontext.scheduler.discoverer_count", 4)
    );
}

#[tokio::test]
async fn nothing_is_recorded_without_a_collector() {
    let tracer = Tracer::default();
    let span = tracer.background(Name::WorkClaim).with(Attribute::ClaimCount(1));
    assert!(!tracer.is_on() && span.ids().is_none() && span.child(Name::WorkCommit).ids().is_none());
    span.end();
}

#[test]
fn ids_are_random_and_read_back() {
    let ids: BTreeSet<_> = (0..100).map(|_| SpanIds::random().span_hex()).collect();
    assert_eq!(ids.len(), 100);
    let ids = SpanIds::random();
    assert_eq!(SpanIds::from_hex(&ids.trace_hex(), &ids.span_hex()), Some(ids));
    let zeros = ("0".repeat(32), "0".repeat(16));
    assert_eq!(SpanIds::from_hex(&zeros.0, &ids.span_hex()), None);
    assert_eq!(SpanIds::from_hex(&ids.trace_hex(), &zeros.1), None);
    assert_eq!(SpanIds::from_hex("", ""), None);
}

#[test]
fn every_attribute_has_a_name_of_its_own() {
    let names: BTreeSet<_> = Attribute::NAMES.into_iter().collect();
    assert_eq!(names.len(), Attribute::NAMES.len());
    assert!(Attribute::NAMES.contains(&OUTCOME));
}
