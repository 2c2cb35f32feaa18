//! The intent of a (binding, scope): two pairs of counters that are never compared with each other.
//!
//! `dirty`/`clean` say whether there may be unread input; `requested`/`handled` whether an accepted invocation is
//! still owed. The types make a mix-up impossible, and each right-hand side can only grow through a proof: a
//! [`LaneEmptied`] token for `handled`, a [`HeadReached`] token for `clean` (I12; design, "Acknowledging").

use crate::refs::Position;
use crate::work::lane::LaneEmptied;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// Before anything happened.
            pub const ZERO: Self = Self(0);

            /// Takes a stored counter.
            pub const fn from_row(raw: u64) -> Self {
                Self(raw)
            }

            /// The number, for the column.
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

counter! {
    /// Counts changes of a scope's input.
    Dirty
}
counter! {
    /// The newest `Dirty` known to be consumed.
    Clean
}
counter! {
    /// Counts accepted invocations.
    Requested
}
counter! {
    /// The newest `Requested` that is over.
    Handled
}

/// Proof that a run's cursor stands at the journal head that the run read after its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadReached(());

impl HeadReached {
    /// The proof, or `None` while sources lie between the cursor and that head.
    pub fn check(cursor: Position, head_read: Position) -> Option<Self> {
        (cursor >= head_read).then_some(Self(()))
    }
}

/// The counters of one (binding, scope).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    dirty: Dirty,
    clean: Clean,
    requested: Requested,
    handled: Handled,
}

/// A stored row that breaks its own checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an intent row breaks clean <= dirty or handled <= requested")]
pub struct BrokenIntent;

impl Intent {
    /// A scope nobody ever captured into or asked for.
    pub const NEW: Self = Self {
        dirty: Dirty::ZERO,
        clean: Clean::ZERO,
        requested: Requested::ZERO,
        handled: Handled::ZERO,
    };

    /// Takes a stored row.
    ///
    /// # Errors
    /// [`BrokenIntent`] when a pair is out of order.
    pub fn from_row(dirty: Dirty, clean: Clean, requested: Requested, handled: Handled) -> Result<Self, BrokenIntent> {
        if clean.0 > dirty.0 || handled.0 > requested.0 {
            return Err(BrokenIntent);
        }
        Ok(Self {
            dirty,
            clean,
            requested,
            handled,
        })
    }

    /// Input changes counted so far.
    pub fn dirty(&self) -> Dirty {
        self.dirty
    }

    /// Input changes known to be consumed.
    pub fn clean(&self) -> Clean {
        self.clean
    }

    /// Invocations accepted so far.
    pub fn requested(&self) -> Requested {
        self.requested
    }

    /// Accepted invocations that are over.
    pub fn handled(&self) -> Handled {
        self.handled
    }

    /// Whether there may be input that no run has read.
    pub fn is_dirty(&self) -> bool {
        self.dirty.0 > self.clean.0
    }

    /// Whether an accepted invocation is not over yet.
    pub fn is_owed(&self) -> bool {
        self.requested.0 > self.handled.0
    }

    /// A source was captured.
    #[must_use]
    pub fn mark_dirty(self) -> Self {
        Self {
            dirty: Dirty(self.dirty.0 + 1),
            ..self
        }
    }

    /// An invocation was accepted.
    #[must_use]
    pub fn raise(self) -> Self {
        Self {
            requested: Requested(self.requested.0 + 1),
            ..self
        }
    }

    /// The lane holds no live item any more: everything requested is over.
    #[must_use]
    pub fn acknowledge(self, _lane: LaneEmptied) -> Self {
        Self {
            handled: Handled(self.requested.0),
            ..self
        }
    }

    /// A run that read `dirty = at_claim` before any of its input consumed all of that input.
    #[must_use]
    pub fn settle(self, at_claim: Dirty, _reached: HeadReached) -> Self {
        Self {
            clean: Clean(self.clean.0.max(at_claim.0.min(self.dirty.0))),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(dirty: u64, clean: u64, requested: u64, handled: u64) -> Intent {
        Intent::from_row(Dirty(dirty), Clean(clean), Requested(requested), Handled(handled)).expect("in order")
    }

    fn reached() -> HeadReached {
        HeadReached::check(Position::new(3), Position::new(3)).expect("equal")
    }

    #[test]
    fn a_pair_out_of_order_is_refused() {
        assert!(Intent::from_row(Dirty(1), Clean(2), Requested(0), Handled(0)).is_err());
        assert!(Intent::from_row(Dirty(1), Clean(1), Requested(0), Handled(1)).is_err());
    }

    #[test]
    fn settling_covers_only_what_the_claim_saw_and_never_goes_back() {
        let later_capture = intent(6, 0, 1, 0);
        assert_eq!(later_capture.settle(Dirty(5), reached()).clean(), Clean(5));
        assert!(later_capture.settle(Dirty(5), reached()).is_dirty());
        assert_eq!(intent(6, 6, 1, 0).settle(Dirty(5), reached()).clean(), Clean(6));
    }

    #[test]
    fn settling_touches_only_the_dirty_pair_and_raising_only_the_other() {
        let before = intent(4, 2, 3, 1);
        let settled = before.settle(Dirty(4), reached());
        assert_eq!(
            (settled.requested(), settled.handled()),
            (before.requested(), before.handled())
        );
        let raised = before.raise();
        assert_eq!(
            (raised.dirty(), raised.clean(), raised.requested()),
            (before.dirty(), before.clean(), Requested(4))
        );
        assert_eq!(before.mark_dirty().dirty(), Dirty(5));
    }

    #[test]
    fn a_cursor_short_of_the_head_proves_nothing() {
        assert_eq!(HeadReached::check(Position::new(2), Position::new(3)), None);
        assert!(HeadReached::check(Position::new(4), Position::new(3)).is_some());
    }

    #[test]
    fn an_emptied_lane_handles_everything_requested() {
        let done = intent(1, 1, 7, 2).acknowledge(LaneEmptied::for_test());
        assert_eq!(done.handled(), Handled(7));
        assert!(!done.is_owed());
    }
}
