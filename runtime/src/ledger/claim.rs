//! Claiming: candidates without locks, then lanes by primary key with skip-locked, then guarded writes.
//!
//! A lane that somebody else holds costs nothing, so one locked lane never slows the others. `requested` and `dirty` are
//! read here, unlocked and before any input of the run (design, "Joining": D). Whatever it takes, a claim is three round
//! trips: candidates; lanes and rows; writes and COMMIT (ADR 0017).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use powercontext_core::ids::{BindingName, MemberId, ScopeId, WorkId, WorkKind};
use powercontext_core::lease::Held;
use powercontext_core::limits::PAYLOAD_VERSIONS;
use powercontext_core::supervise::fairness::StartShare;
use powercontext_core::supervise::intent::{Dirty, Requested};
use powercontext_core::time::{DbTime, Span};
use powercontext_core::work::ready::ReadyFrom;
use powercontext_core::work::usual::is_usual_claim;
use powercontext_core::work::{AttemptNo, Event, SlotNo, UsualFinish, WorkState, step};

use crate::ledger::kinds::KindSpec;
use crate::ledger::slots::{self, give_back};
use crate::ledger::write::{Guard, LockedLane, write_intent, write_step};
use crate::ledger::{LeaseTerm, Ledger};
use crate::rt;
use crate::store::batch::{self, ClaimRow, Found, Wanted};
use crate::store::error::corrupt;
use crate::store::notes::Note;
use crate::store::works::{Beat, Candidate, WorkRow};
use crate::store::{Dialect, Tx, TxError, TxName, works};

/// Most items of one claim.
const CLAIM_MAX: u32 = 64;
/// Candidates read for each item wanted; the surplus replaces those whose lanes are locked.
const OVERFETCH: u32 = 4;
/// Candidates read beyond that, so that a worker with one free slot is not stopped by a handful of locked lanes.
const SPARE: u32 = 32;
/// Items that one process may hold and look for when it adopts.
const OWNED_MAX: u32 = 512;

/// A claimed item: what its run needs to know.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The lease.
    pub held: Held<WorkId>,
    /// Its kind.
    pub kind: WorkKind,
    /// Where it works.
    pub scope: ScopeId,
    /// Its payload, as stored.
    pub payload: Vec<u8>,
    /// The attempt.
    pub attempt: AttemptNo,
    /// Attempts of this recovery generation, this one included.
    pub budget_used: u32,
    /// `dirty` at the claim.
    pub dirty: Dirty,
    /// `requested` at the claim, for correlation only.
    pub requested: Requested,
    /// The finish that it will have if nobody touches it until then; `None` where the general path must decide.
    pub usual: Option<UsualFinish>,
    /// The slot that it holds, if its family has a cap and this process has taken the slot itself.
    pub slot: Option<SlotNo>,
    /// When the item was enqueued.
    pub created_at: DbTime,
    /// When it was claimed.
    pub claimed_at: DbTime,
}

impl Claimed {
    /// Why its work was admitted: a client asked, or the Supervisor found it.
    pub fn trigger(&self) -> &'static str {
        let payload: Option<serde_json::Value> = serde_json::from_slice(&self.payload).ok();
        match payload {
            Some(payload) if payload.get("requester").is_some() => "explicit",
            _ => "automatic",
        }
    }
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Kinds that this process can take now, each with how many of it.
    pub kinds: Vec<(WorkKind, u32)>,
}

pub(super) struct Input {
    me: MemberId,
    lease: LeaseTerm,
    pub(super) wanted: Vec<(KindSpec, u32)>,
    /// How many starts of each of them are kept for ordinary items.
    ordinary: Vec<u32>,
    /// From where on each of them is looked for.
    from: Vec<Option<DbTime>>,
}

/// What a claim has taken: the items, which of them are ordinary, and where the next look at each kind may begin.
type Took = (Vec<Claimed>, BTreeSet<WorkId>, Vec<Option<ReadyFrom>>);

impl Ledger {
    /// Claims due work. A lane that somebody holds is passed over.
    ///
    /// # Errors
    /// [`TxError`]; after `Unknown` the items may be ours: [`Ledger::adopt`] finds them.
    pub async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, TxError> {
        let spec_of =
            |(kind, limit): &(WorkKind, u32)| Some((self.kinds().get(kind)?.clone(), (*limit).min(CLAIM_MAX)));
        let wanted: Vec<_> = claim
            .kinds
            .iter()
            .filter_map(spec_of)
            .filter(|(_, limit)| *limit > 0)
            .collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.make_slots(wanted.iter().map(|(spec, _)| spec)).await?;
        let ordinary = wanted
            .iter()
            .map(|(spec, limit)| self.share(&spec.kind).ordinary_of(*limit));
        let input = Arc::new(Input {
            me: self.me().clone(),
            lease: self.0.lease,
            ordinary: ordinary.collect(),
            from: wanted.iter().map(|(spec, _)| self.look_from(&spec.kind)).collect(),
            wanted,
        });
        let begun = rt::now();
        let (claimed, ordinary, looks) = self
            .db()
            .tx_with(TxName::Claim, &input, |tx, input| Box::pin(claim_in(tx, input)))
            .await?;
        self.count_starts(&claimed, &ordinary);
        let looked = input.wanted.iter().zip(&input.from).zip(looks);
        self.looked(
            begun,
            looked.map(|(((spec, _), from), next)| (&spec.kind, from.is_none(), next)),
        );
        if !claimed.is_empty() {
            self.signals().changed.notify_waiters();
        }
        Ok(claimed)
    }

    fn shares(&self) -> MutexGuard<'_, BTreeMap<WorkKind, StartShare>> {
        // No code panics between two changes under this lock.
        self.0.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self, kind: &WorkKind) -> StartShare {
        self.shares().get(kind).copied().unwrap_or_default()
    }

    fn count_starts(&self, claimed: &[Claimed], ordinary: &BTreeSet<WorkId>) {
        let mut starts: BTreeMap<&WorkKind, (u32, u32)> = BTreeMap::new();
        for claimed in claimed {
            let (all, kept) = starts.entry(&claimed.kind).or_insert((0, 0));
            *all += 1;
            *kept += u32::from(ordinary.contains(claimed.held.key()));
        }
        let mut shares = self.shares();
        for (kind, (all, kept)) in starts {
            let share = shares.entry(kind.clone()).or_default();
            *share = share.after(all, kept);
        }
    }

    /// Finds items that this process holds but does not run: a claim's reply was lost. Cancelling ones end cancelled.
    /// `running` are the items that it does run, or will not run under the lease that they have. A process must not adopt beside a
    /// claim of its own: it would find what the claim is about to answer.
    ///
    /// # Errors
    /// [`TxError`]; what was found is found again by the next call.
    pub async fn adopt(&self, running: Vec<WorkId>) -> Result<Vec<Claimed>, TxError> {
        let mut known = running;
        let mut adopted = Vec::new();
        loop {
            let input = Arc::new((self.clone(), known.clone()));
            let pass = self.db().tx_with(TxName::Claim, &input, |tx, (ledger, known)| {
                Box::pin(adopt_in(tx, ledger, known))
            });
            let (found, is_last) = pass.await?;
            known.extend(found.iter().map(|claimed| *claimed.held.key()));
            adopted.extend(found);
            if is_last {
                return Ok(adopted);
            }
            // One ended: the item behind it may be claimable now, and somebody may wait for the end.
            self.signals().work.notify_one();
            self.signals().changed.notify_waiters();
        }
    }

    /// Renews the leases of running items, never waiting for a lock, and answers for each in the order of `held`. Nothing to do, and
    /// no answers, for leases without a time.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn heartbeat(&self, held: Vec<Held<WorkId>>) -> Result<Vec<(WorkId, Beat)>, TxError> {
        let input = Arc::new((held, self.0.lease));
        self.db()
            .tx_with(TxName::Heartbeat, &input, |tx, (held, lease)| {
                Box::pin(heartbeat_in(tx, held, *lease))
            })
            .await
    }

    /// When the next waiting item of these kinds is due, to sleep until then.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn next_due(&self) -> Result<Option<Span>, TxError> {
        let kinds: Vec<_> = self.kinds().iter().map(|spec| spec.kind.clone()).collect();
        self.next_due_of(&kinds).await
    }

    /// The same for some kinds: those that this process could take then.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn next_due_of(&self, kinds: &[WorkKind]) -> Result<Option<Span>, TxError> {
        let specs = kinds.iter().filter_map(|kind| self.kinds().get(kind).cloned());
        self.db()
            .read_with(
                TxName::Claim,
                &Arc::new(specs.collect()),
                |tx, specs: &Vec<KindSpec>| Box::pin(next_due_in(tx, specs)),
            )
            .await
    }

    fn specs(&self) -> Arc<Vec<KindSpec>> {
        Arc::new(self.kinds().iter().cloned().collect())
    }

    /// Whether a lane head waits whose payload this build cannot read.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn has_unsupported(&self) -> Result<bool, TxError> {
        self.db()
            .read_with(TxName::Ping, &self.specs(), |tx, specs| {
                Box::pin(has_unsupported_in(tx, specs))
            })
            .await
    }
}

async fn next_due_in(tx: &mut Tx, specs: &[KindSpec]) -> Result<Option<Span>, TxError> {
    let now = tx.now().await?;
    let mut next: Option<DbTime> = None;
    for spec in specs {
        for version in PAYLOAD_VERSIONS {
            let due = works::next_due(tx, &spec.kind, version).await?;
            next = next.into_iter().chain(due).min();
        }
    }
    Ok(next.map(|due| due.since(now)))
}

async fn has_unsupported_in(tx: &mut Tx, specs: &[KindSpec]) -> Result<bool, TxError> {
    for spec in specs {
        if works::has_unsupported(tx, &spec.kind, PAYLOAD_VERSIONS).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a claim has taken so far.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) rows: Vec<ClaimRow>,
    pub(super) claimed: Vec<Claimed>,
}

async fn claim_in(tx: &mut Tx, input: &Input) -> Result<Took, TxError> {
    let dialect = tx.dialect();
    let wanted = input.wanted.iter().zip(&input.ordinary).zip(&input.from);
    let page_of = |((wanted, kept), from): ((_, &u32), &Option<DbTime>)| page_of(dialect, wanted, *kept, *from);
    let wanted: Vec<_> = wanted.map(page_of).collect();
    let ready = batch::ready(tx, &wanted).await?;
    let looks = ready.iter().map(|ready| ready.next).collect();
    let (mut pages, mut limits, mut free, mut ordinary) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
    for ((ready, (_, limit)), kept) in ready.into_iter().zip(&input.wanted).zip(&input.ordinary) {
        let (mut page, limit) = (ready.page, slots::within(ready.slots.as_deref(), *limit));
        if dialect == Dialect::OceanBase {
            // Workers that read the same page start at different places of it, or they would all meet at the same lanes.
            let start = rt::random() as usize % page.len().max(1);
            page.rotate_left(start);
        }
        ordinary_first(&mut page, ready.ordinary, *kept, rt::random(), &mut ordinary);
        if limit == 0 {
            page.clear();
        }
        pages.push(page);
        limits.push(limit);
        free.push(ready.slots);
    }
    let (mut taken, mut now, mut spare) = (Taken::default(), None, 0);
    loop {
        let next = next_candidates(input, &mut pages, &limits, CLAIM_MAX - count(&taken.claimed), spare);
        if next.iter().all(|(_, page)| page.is_empty()) {
            break;
        }
        let (found, at) = batch::lock_candidates(tx, &next).await?;
        now = Some(at);
        for ((found, limit), (spec, _)) in found.into_iter().zip(&mut limits).zip(&input.wanted) {
            for found in found {
                if *limit > 0 && count(&taken.claimed) < CLAIM_MAX && take(input, spec, &found, at, &mut taken)? {
                    *limit -= 1;
                }
            }
        }
        // Some were locked: try more at once than are missing.
        spare = SPARE / 4;
    }
    let slots = slots::take(tx, input, &free, &ordinary, &mut taken).await?;
    if let Some(now) = now.filter(|_| !taken.rows.is_empty()) {
        let slots: Vec<_> = slots.iter().map(slots::Taken::row).collect();
        batch::claim(tx, &taken.rows, &slots, &input.me, input.lease.from(now)).await?;
    }
    for claimed in &taken.claimed {
        tx.note(Note::Claimed {
            kind: claimed.kind.clone(),
            latency: claimed.claimed_at.since(claimed.created_at),
        });
    }
    Ok((taken.claimed, ordinary, looks))
}

/// Puts as many ordinary items before a page as starts are kept for them.
fn ordinary_first(
    page: &mut Vec<Candidate>,
    mut found: Vec<Candidate>,
    kept: u32,
    start: u32,
    ordinary: &mut BTreeSet<WorkId>,
) {
    let start = start as usize % found.len().max(1);
    found.rotate_left(start);
    found.truncate(kept as usize);
    let ids: BTreeSet<WorkId> = found.iter().map(|candidate| candidate.id).collect();
    page.retain(|candidate| !ids.contains(&candidate.id));
    page.splice(0..0, found);
    ordinary.extend(ids);
}

fn page_of(dialect: Dialect, (spec, limit): &(KindSpec, u32), kept: u32, from: Option<DbTime>) -> Wanted {
    Wanted {
        kind: spec.kind.clone(),
        versions: PAYLOAD_VERSIONS,
        limit: match dialect {
            Dialect::OceanBase => limit * OVERFETCH + SPARE,
            // Nobody else has a lane where one process writes; the surplus is for rows that cannot be read.
            Dialect::Sqlite => limit + SPARE / 4,
        },
        from,
        slots: spec.slots_max.map(|cap| (spec.family.clone(), cap)),
        ordinary: (kept > 0).then(|| spec.binding.clone()),
    }
}

/// The next candidates of each kind, for as many items as are still missing and some to spare.
fn next_candidates<'a>(
    input: &'a Input,
    pages: &mut [Vec<Candidate>],
    limits: &[u32],
    mut left: u32,
    spare: u32,
) -> Vec<(&'a BindingName, Vec<Candidate>)> {
    let mut next = Vec::with_capacity(pages.len());
    for ((page, limit), (spec, _)) in pages.iter_mut().zip(limits).zip(&input.wanted) {
        let missing = (*limit).min(left);
        left -= missing;
        let size = if missing == 0 { 0 } else { missing + spare };
        let rest = page.split_off(page.len().min(size as usize));
        next.push((&spec.binding, std::mem::replace(page, rest)));
    }
    next
}

fn count(claimed: &[Claimed]) -> u32 {
    u32::try_from(claimed.len()).unwrap_or(u32::MAX)
}

/// Takes a candidate whose lane is locked, unless it has moved on since it was read.
fn take(input: &Input, spec: &KindSpec, found: &Found, now: DbTime, taken: &mut Taken) -> Result<bool, TxError> {
    let row = &found.row;
    if found.head != Some(row.seq) || row.kind != spec.kind || !PAYLOAD_VERSIONS.contains(&row.payload_version) {
        return Ok(false);
    }
    let event = Event::Claim {
        by: &input.me,
        expiry: input.lease.from(now),
        requested: found.requested,
        dirty: found.dirty,
    };
    // Somebody was faster, or the item waits longer now: not ours, and no error.
    let Ok(step) = step(&row.item, &event, now, &input.me) else {
        return Ok(false);
    };
    if !is_usual_claim(&row.item, &step.item) {
        tracing::warn!("an item whose counters cannot move is passed over");
        return Ok(false);
    }
    taken.claimed.push(claimed(&step.item, row, now, &input.me)?);
    taken.rows.push(ClaimRow {
        version: row.item.version,
        after: step.item,
        requested: found.requested,
        dirty: found.dirty,
    });
    Ok(true)
}

fn claimed(
    item: &powercontext_core::work::Item,
    row: &WorkRow,
    now: DbTime,
    me: &MemberId,
) -> Result<Claimed, TxError> {
    let run = item.state.run().ok_or_else(|| corrupt("run"))?;
    Ok(Claimed {
        held: Held::granted(item.id, run.holder.clone()),
        kind: row.kind.clone(),
        scope: row.scope.clone(),
        payload: row.payload.clone(),
        attempt: AttemptNo::from_row(item.counters.attempts).ok_or_else(|| corrupt("attempt_count"))?,
        budget_used: item.counters.budget_used,
        dirty: run.dirty,
        requested: run.requested,
        usual: UsualFinish::of(item, row.seq, me),
        slot: None,
        created_at: row.created_at,
        claimed_at: now,
    })
}

/// One pass: what was found, and whether nothing is left for another pass.
async fn adopt_in(tx: &mut Tx, ledger: &Ledger, known: &[WorkId]) -> Result<(Vec<Claimed>, bool), TxError> {
    let me = ledger.me();
    let mut lost = works::owned(tx, me, OWNED_MAX).await?;
    lost.retain(|candidate| !known.contains(&candidate.id));
    lost.sort_by(|a, b| a.lane.cmp(&b.lane));
    let mut found = Vec::new();
    for candidate in lost {
        let Some(lane) = LockedLane::try_lock(tx, &candidate.lane).await? else {
            continue;
        };
        let Some(row) = lane.row(candidate.id) else { continue };
        let now = tx.now().await?;
        let Ok(step) = step(&row.item, &Event::Adopt { by: me }, now, me) else {
            continue;
        };
        if matches!(step.item.state, WorkState::Running(_)) {
            let mut adopted = claimed(&step.item, row, now, me)?;
            // Which slot it holds is not known here; the general path looks that up.
            let spec = ledger.kinds().get(&row.kind);
            adopted.usual = adopted
                .usual
                .filter(|_| spec.is_none_or(|spec| spec.slots_max.is_none()));
            found.push(adopted);
            continue;
        }
        give_back(tx, row, &step).await?;
        let emptied = write_step(tx, &lane, row, &step, Guard::default()).await?;
        if let Some(spec) = ledger.kinds().get(&row.kind) {
            write_intent(tx, spec, row, emptied, None).await?;
        }
        // The intent is the last lock of the order; another pass takes the rest.
        return Ok((found, false));
    }
    Ok((found, true))
}

async fn heartbeat_in(tx: &mut Tx, held: &[Held<WorkId>], lease: LeaseTerm) -> Result<Vec<(WorkId, Beat)>, TxError> {
    let LeaseTerm::Timed(span) = lease else {
        return Ok(Vec::new());
    };
    let until = tx.now().await?.plus(span);
    let mut beats = Vec::with_capacity(held.len());
    for held in held {
        let beat = works::beat(tx, *held.key(), held.holder(), until).await?;
        if matches!(beat, Beat::Renewed | Beat::CancelRequested) {
            crate::store::attempts::beat(tx, *held.key(), held.holder()).await?;
        }
        beats.push((*held.key(), beat));
    }
    Ok(beats)
}
