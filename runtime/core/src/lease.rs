//! Leases: what I hold, and what I merely saw, are different types, so nothing can act on a view.

use serde::{Deserialize, Serialize};

use crate::fence::Fence;
use crate::ids::MemberId;
use crate::time::DbTime;

/// Until when a lease is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiry {
    /// As long as the holder's process owns the database file (SQLite: one process, one term, no clock).
    Term,
    /// Until this moment on the database's clock.
    At(DbTime),
}

/// Who holds an item, as its row says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process that claimed it.
    pub member: MemberId,
    /// Fence of the claim.
    pub fence: Fence,
    /// Until when the claim is good.
    pub expiry: Expiry,
}

impl Holder {
    /// Whether the lease is over: its time has passed, or (a lease without time) its process is not the living one.
    pub fn has_lapsed(&self, now: DbTime, living: &MemberId) -> bool {
        match self.expiry {
            Expiry::At(at) => at.has_passed(now),
            Expiry::Term => self.member != *living,
        }
    }
}

/// A lease that this process won. Writes that need it take it as an argument; only the store makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held<K> {
    key: K,
    holder: Holder,
}

impl<K> Held<K> {
    /// What a won claim or acquire yields. Only the store calls this, after the write that granted it.
    pub fn granted(key: K, holder: Holder) -> Self {
        Self { key, holder }
    }

    /// The thing leased.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Owner, fence and expiry as granted.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Fence of the grant.
    pub fn fence(&self) -> Fence {
        self.holder.fence
    }

    /// The process that won it.
    pub fn member(&self) -> &MemberId {
        &self.holder.member
    }
}

/// A lease as somebody else's row shows it; good for reading only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<K> {
    /// The thing leased.
    pub key: K,
    /// Its holder, if any.
    pub holder: Option<Holder>,
    /// Highest fence given out so far, `None` before the first.
    pub fence: Option<Fence>,
}

/// Outcome of trying to take a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquire<K> {
    /// Taken or extended.
    Won(Held<K>),
    /// Somebody else holds it.
    Lost(Seen<K>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn a_timed_lease_lapses_at_its_expiry_and_a_term_with_its_process() {
        let now = DbTime::from_micros(1_000_000);
        let me = MemberId::parse("me").expect("valid");
        let other = MemberId::parse("other").expect("valid");
        let timed = |expires| Holder {
            member: me.clone(),
            fence: Fence::FIRST,
            expiry: Expiry::At(expires),
        };
        assert!(timed(now).has_lapsed(now, &me));
        assert!(!timed(now.plus(Span::millis(1))).has_lapsed(now, &other));
        let term = Holder {
            member: me.clone(),
            fence: Fence::FIRST,
            expiry: Expiry::Term,
        };
        assert!(!term.has_lapsed(now, &me));
        assert!(term.has_lapsed(now, &other));
    }
}
