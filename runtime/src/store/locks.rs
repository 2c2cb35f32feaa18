//! The one lock order, checked in debug builds. OceanBase answers a deadlock by failing both sides after the lock limit;
//! order is the only cure. The order itself is the design's ("Lock order").

/// Kinds of rows that transactions lock, in the order in which they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockKind {
    /// A lane's row.
    Lane,
    /// A work item's row.
    Item,
    /// A scope's journal head.
    JournalHead,
    /// A binding's cursor in a scope.
    Cursor,
    /// An artifact's head.
    ArtifactHead,
    /// The intent of a binding in a scope.
    Intent,
    /// A named lease.
    Lease,
}

/// What a transaction has locked last.
#[derive(Debug, Default)]
pub(crate) struct LockOrder {
    last: Option<(LockKind, String)>,
}

impl LockOrder {
    /// Notes a lock. Panics in debug builds when it comes out of order; the same row may be noted twice.
    pub(crate) fn take(&mut self, kind: LockKind, key: &str) {
        let next = (kind, key.to_owned());
        debug_assert!(
            self.last.as_ref().is_none_or(|last| *last <= next),
            "lock order: {kind:?} after {:?}",
            self.last.as_ref().map(|l| l.0)
        );
        self.last = Some(next);
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
