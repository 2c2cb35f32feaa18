//! The one lock order, checked in debug builds. OceanBase answers a deadlock by failing both sides after the lock limit;
//! order is the only cure. The order itself is the design's ("Lock order").
//!
//! A lock that may wait must not lie before any lock held already. One that never waits (skip-locked) may be taken at any
//! time, because a cycle of waiting transactions needs each of them to wait; but it counts for those that follow it. So
//! claim and recover go on to the next lane with the items of the last one still locked. Items are not ordered among each
//! other: they are locked under their lane, and by heartbeats, which never wait.

/// Kinds of rows that transactions lock, in the order in which they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockKind {
    /// A lane's row.
    Lane,
    /// A work item's row.
    Item,
    /// A slot of a family with a cap.
    Slot,
    /// A scope's journal head.
    JournalHead,
    /// A binding's cursor in a scope.
    Cursor,
    /// An artifact's head.
    ArtifactHead,
    /// The intent of a binding in a scope.
    Intent,
    /// The state of a binding's checks.
    BindingState,
    /// A named lease.
    Lease,
}

/// The highest lock that a transaction holds.
#[derive(Debug, Default)]
pub(crate) struct LockOrder {
    last: Option<(LockKind, String)>,
}

impl LockOrder {
    /// Notes a lock that may wait. Panics in debug builds when it comes out of order; the same row may be noted twice.
    pub(crate) fn take(&mut self, kind: LockKind, key: &str) {
        let next = (kind, key.to_owned());
        debug_assert!(
            self.last.as_ref().is_none_or(|last| *last <= next),
            "lock order: {kind:?} after {:?}",
            self.last.as_ref().map(|l| l.0)
        );
        self.last = Some(next);
    }

    /// Notes a lock that is skipped when somebody holds it. It may come at any time.
    pub(crate) fn take_free(&mut self, kind: LockKind, key: &str) {
        let next = (kind, key.to_owned());
        self.last = self.last.take().max(Some(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_in_order_are_accepted_and_the_same_row_twice() {
        let mut order = LockOrder::default();
        for (kind, key) in [
            (LockKind::Lane, "a"),
            (LockKind::Lane, "b"),
            (LockKind::Item, "a"),
            (LockKind::Item, "a"),
            (LockKind::Lease, "a"),
        ] {
            order.take(kind, key);
        }
    }

    #[test]
    fn a_lock_that_never_waits_may_come_at_any_time() {
        let mut order = LockOrder::default();
        order.take_free(LockKind::Lane, "b");
        order.take(LockKind::Item, "");
        order.take_free(LockKind::Lane, "a");
        order.take(LockKind::Item, "");
        order.take(LockKind::Intent, "a");
    }

    #[test]
    #[should_panic(expected = "lock order")]
    fn a_lock_that_never_waits_counts_for_those_that_follow() {
        let mut order = LockOrder::default();
        order.take_free(LockKind::Item, "");
        order.take(LockKind::Lane, "a");
    }

    #[test]
    #[should_panic(expected = "lock order")]
    fn a_lane_after_an_item_is_out_of_order() {
        let mut order = LockOrder::default();
        order.take(LockKind::Item, "a");
        order.take(LockKind::Lane, "a");
    }

    #[test]
    #[should_panic(expected = "lock order")]
    fn within_a_kind_keys_are_taken_in_their_order() {
        let mut order = LockOrder::default();
        order.take(LockKind::Lane, "b");
        order.take(LockKind::Lane, "a");
    }
}
