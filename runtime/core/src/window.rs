//! Which sources one invocation reads.

use crate::refs::Position;

/// A half-open stretch of a journal: every position in `(after, through]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Last position before the window.
    pub after: Position,
    /// Last position inside the window.
    pub through: Position,
}

impl Window {
    /// The next window behind `after`, at most `limit` sources long; `None` when nothing lies between it and `head`.
    pub fn next(after: Position, head: Position, limit: u32) -> Option<Self> {
        if head <= after || limit == 0 {
            return None;
        }
        let through = Position::new(after.get().saturating_add(u64::from(limit)).min(head.get()));
        Some(Self { after, through })
    }

    /// Number of sources in the window.
    pub fn len(&self) -> u64 {
        self.through.get() - self.after.get()
    }

    /// Never true for a window that [`Window::next`] made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_the_next_sources_up_to_its_limit_and_the_head() {
        let at = Position::new;
        assert_eq!(Window::next(at(0), at(0), 100), None);
        assert_eq!(Window::next(at(7), at(5), 100), None);
        assert_eq!(Window::next(at(0), at(3), 0), None);
        for (after, head, limit, through, len) in [
            (0, 1, 100, 1, 1),
            (0, 100, 100, 100, 100),
            (0, 101, 100, 100, 100),
            (100, 101, 100, 101, 1),
        ] {
            let window = Window::next(at(after), at(head), limit).expect("pending");
            assert_eq!(
                (window.after, window.through, window.len()),
                (at(after), at(through), len)
            );
        }
    }
}
