//! Everything at once: clients, three processes that crash, lose replies and leases, and operators, in random order. The
//! rows must keep their rules after every round, every flush that was answered must be covered by the item it was
//! answered with, and once the faults stop all work ends (I21).
//!
//! What happens in which round comes from a seed, which a failure prints.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use powercontext::ledger::{Claimed, Ended, Flushed, Ledger, OperatorError};
use powercontext::rt;
use powercontext::store::works::Beat;
use powercontext::store::{FenceLost, TxError};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkId};
use powercontext_core::refs::{Cursor, Position};
use powercontext_core::work::WorkState;
use powercontext_tests::db::TestDb;
use powercontext_tests::plans;

use crate::ledger_kit::{Kit, binding, claim, done, request, step};

const SCOPES: usize = 3;
const PROCESSES: usize = 3;
const ROUNDS: u32 = 70;
const OPERATIONS_AT_ONCE: usize = 4;
/// Rounds after the faults within which all work must have ended.
const ROUNDS_TO_END: u32 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_random_history_keeps_every_rule_on_sqlite() -> anyhow::Result<()> {
    for seed in seeds()? {
        run(TestDb::sqlite().await?, seed)
            .await
            .with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_random_history_keeps_every_rule_on_oceanbase() -> anyhow::Result<()> {
    for seed in seeds()? {
        let test = TestDb::oceanbase_alone().await?;
        let url = test.url().to_owned();
        run(test, seed).await.with_context(|| format!("seed {seed}"))?;
        let whole = plans::whole_tables(&url).await?;
        ensure!(whole.is_empty(), "a whole table is read for a key: {whole:#?}");
    }
    Ok(())
}

/// Two histories that are always the same and one that is fresh, or replayed.
fn seeds() -> anyhow::Result<[u64; 3]> {
    Ok([1, 2, powercontext_tests::seed()?])
}

/// `SplitMix64`: a history must be the same wherever it is replayed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("less than a usize")
    }
}

/// Chooses one of several by a drawn number.
fn one_of<T>(all: &[T], pick: u64) -> Option<&T> {
    let place = usize::try_from(pick % all.len().max(1) as u64).expect("less than a usize");
    all.get(place)
}

/// A run in a process, as far as it has come.
struct Running {
    claimed: Claimed,
    read: Option<(Cursor, Position)>,
}

struct Process {
    ledger: Ledger,
    /// A process does one thing with its runs at a time, as a worker's loop does.
    running: tokio::sync::Mutex<Vec<Running>>,
}

struct World {
    kit: Kit,
    scopes: Vec<ScopeId>,
    processes: Vec<Process>,
    /// For each item that a flush was answered with, the journal head that it must cover.
    promised: Mutex<BTreeMap<WorkId, Position>>,
}

/// What happens in a round beside what moves time.
#[derive(Debug, Clone, Copy)]
enum What {
    Capture,
    Flush,
    Claim,
    Read,
    Finish,
    Window,
    Fail,
    Conflict,
    Release,
    Heartbeat,
    Forget,
    Adopt,
    Recover,
    Cancel,
    Retry,
}

const WHAT: [What; 24] = [
    What::Capture,
    What::Capture,
    What::Flush,
    What::Flush,
    What::Flush,
    What::Claim,
    What::Claim,
    What::Claim,
    What::Claim,
    What::Read,
    What::Read,
    What::Finish,
    What::Finish,
    What::Finish,
    What::Window,
    What::Fail,
    What::Conflict,
    What::Release,
    What::Heartbeat,
    What::Forget,
    What::Adopt,
    What::Recover,
    What::Cancel,
    What::Retry,
];

async fn run(test: TestDb, seed: u64) -> anyhow::Result<()> {
    // Every second history with fewer slots than there are lanes and processes.
    let slots_max = NonZeroU16::new(2).filter(|_| seed.is_multiple_of(2));
    let kit = Kit::capped(test, slots_max);
    let mut draws = Draws(seed);
    let scopes = (0..SCOPES)
        .map(|n| kit.scope(&format!("scope {n}")))
        .collect::<Result<_, _>>()?;
    let processes = (0..PROCESSES)
        .map(|_| Process {
            ledger: kit.process(),
            running: tokio::sync::Mutex::default(),
        })
        .collect();
    let world = Arc::new(World {
        kit,
        scopes,
        processes,
        promised: Mutex::default(),
    });
    for round in 0..ROUNDS {
        let at_once: Vec<_> = (0..=draws.below(OPERATIONS_AT_ONCE))
            .map(|_| (WHAT[draws.below(WHAT.len())], draws.next()))
            .collect();
        let time = draws.next();
        world
            .round(&at_once, time)
            .await
            .with_context(|| format!("round {round}: {at_once:?}"))?;
    }
    world.ends().await
}

impl World {
    async fn round(self: &Arc<Self>, at_once: &[(What, u64)], time: u64) -> anyhow::Result<()> {
        let mut tasks = Vec::new();
        for (what, pick) in at_once.iter().copied() {
            let world = Arc::clone(self);
            tasks.push(rt::spawn(async move { world.happens(what, pick).await }));
        }
        for task in tasks {
            task.await??;
        }
        if time.is_multiple_of(3) {
            self.kit.all_due().await?;
        }
        if time.is_multiple_of(5) {
            self.lease_runs_out(time / 5).await?;
        }
        if time.is_multiple_of(11) {
            self.somebody_else_moves_the_cursor(time / 11).await?;
        }
        self.check().await
    }

    async fn check(&self) -> anyhow::Result<()> {
        self.kit.check().await?;
        for (id, head) in self.promises() {
            let row = self.kit.row(id).await?;
            if let (WorkState::Succeeded { .. }, Some(result)) = (&row.item.state, &row.result) {
                let result: serde_json::Value = serde_json::from_slice(result)?;
                let cursor = result["current_cursor"].as_u64().context("no cursor in the result")?;
                ensure!(
                    cursor >= head.get(),
                    "{id} succeeded at {cursor} and was to cover {}",
                    head.get()
                );
            }
        }
        Ok(())
    }

    fn promises(&self) -> Vec<(WorkId, Position)> {
        let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.iter().map(|(id, head)| (*id, *head)).collect()
    }

    async fn happens(&self, what: What, pick: u64) -> anyhow::Result<()> {
        let process = one_of(&self.processes, pick).context("a process")?;
        let pick = pick / PROCESSES as u64;
        match what {
            What::Capture => {
                let scope = one_of(&self.scopes, pick).context("a scope")?;
                self.kit.capture(scope).await.map(|_| ())
            }
            What::Flush => {
                self.flush(one_of(&self.scopes, pick).context("a scope")?, &process.ledger)
                    .await
            }
            What::Claim => {
                let mut running = process.running.lock().await;
                let claimed = claim(&process.ledger, 1 + u32::from(pick.is_multiple_of(2))).await?;
                running.extend(claimed.into_iter().map(|claimed| Running { claimed, read: None }));
                Ok(())
            }
            What::Adopt => {
                let mut running = process.running.lock().await;
                let known = running.iter().map(|run| *run.claimed.held.key()).collect();
                let adopted = process.ledger.adopt(known).await?;
                running.extend(adopted.into_iter().map(|claimed| Running { claimed, read: None }));
                Ok(())
            }
            What::Heartbeat => beat(process).await,
            What::Recover => process.ledger.recover().await.map(|_| ()).map_err(Into::into),
            What::Cancel | What::Retry => self.operator_acts(what, pick, &process.ledger).await,
            _ => self.run_goes_on(what, pick, process).await,
        }
    }

    async fn flush(&self, scope: &ScopeId, ledger: &Ledger) -> anyhow::Result<()> {
        let before = self.kit.head(scope).await?;
        match ledger.flush(request(scope)).await? {
            Flushed::Idle { cursor, .. } => ensure!(cursor >= before, "idle at {cursor:?} before {before:?}"),
            Flushed::Blocked { .. } => {}
            Flushed::Accepted { id, .. } => {
                let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
                let covers = promised.entry(id).or_insert(before);
                *covers = before.max(*covers);
            }
        }
        Ok(())
    }

    async fn operator_acts(&self, what: What, pick: u64, ledger: &Ledger) -> anyhow::Result<()> {
        let promises = self.promises();
        let Some((id, _)) = one_of(&promises, pick) else {
            return Ok(());
        };
        let row = self.kit.row(*id).await?;
        let is_stale = pick.is_multiple_of(7);
        let version = row.item.version - u64::from(is_stale);
        let answer = match what {
            What::Cancel => ledger.cancel(*id, version).await,
            _ => ledger.retry(*id, version).await,
        };
        match answer {
            Ok(row) => ensure!(
                !is_stale && matches!(row.item.state.name(), "cancelled" | "cancelling" | "queued"),
                "{what:?} answered {row:?}"
            ),
            Err(OperatorError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// One run of a process reads, writes or ends.
    async fn run_goes_on(&self, what: What, pick: u64, process: &Process) -> anyhow::Result<()> {
        let mut running = process.running.lock().await;
        if running.is_empty() {
            return Ok(());
        }
        let place = usize::try_from(pick % running.len() as u64)?;
        let mut run = running.swap_remove(place);
        let (scope, ledger) = (run.claimed.scope.clone(), &process.ledger);
        let (from, head) = match run.read {
            Some(read) if !matches!(what, What::Read) => read,
            _ => (self.kit.cursor(&scope).await?, self.kit.head(&scope).await?),
        };
        run.read = Some((from, head));
        match what {
            What::Finish => match ledger.finish(&run.claimed, done(&scope, from, head, head)).await {
                Ok(Ended::Succeeded | Ended::Cancelled | Ended::Lost) => {}
                Err(TxError::Refused(code)) => ends(ledger.conflict(&run.claimed, code).await)?,
                other => anyhow::bail!("a finish answered {other:?}"),
            },
            What::Window if from.sequence < head => {
                match ledger
                    .commit_window(&run.claimed, step(&scope, from, from.sequence.next()))
                    .await
                {
                    Ok(_) | Err(TxError::Refused(FailCode::CursorChanged)) => {
                        run.read = None;
                        running.push(run);
                    }
                    Err(TxError::Refused(FailCode::CancelRequested) | TxError::Fenced(FenceLost::Item)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            What::Read | What::Window => running.push(run),
            What::Fail if pick.is_multiple_of(8) => ends(ledger.fail(&run.claimed, FailCode::InvalidPayload).await)?,
            What::Fail => ends(ledger.fail(&run.claimed, FailCode::ProviderTimeout).await)?,
            What::Conflict => ends(ledger.conflict(&run.claimed, FailCode::HeadChanged).await)?,
            What::Release => ends(ledger.release(&run.claimed).await)?,
            // Forgotten: the process lost the reply to its claim, or died.
            _ => {}
        }
        Ok(())
    }

    /// The lease of some running item is over, whatever its process does.
    async fn lease_runs_out(&self, pick: u64) -> anyhow::Result<()> {
        let promises = self.promises();
        let Some((id, _)) = one_of(&promises, pick) else {
            return Ok(());
        };
        let mut raw = self.kit.raw().await?;
        let ago = raw.ago(1);
        raw.execute(&format!(
            "update pc_work_items set lease_expires_at = {ago}
             where work_id = '{id}' and status in ('running', 'cancelling')"
        ))
        .await?;
        Ok(())
    }

    async fn somebody_else_moves_the_cursor(&self, pick: u64) -> anyhow::Result<()> {
        let scope = one_of(&self.scopes, pick).context("a scope")?.clone();
        let mut raw = self.kit.raw().await?;
        raw.execute(&format!(
            "update pc_source_cursors set sequence = sequence + 1, generation = generation + 1
             where scope_id = '{scope}' and binding_name = '{}' and sequence <
                   (select position from pc_source_journal_heads where scope_id = '{scope}')",
            binding()
        ))
        .await?;
        Ok(())
    }

    /// No more faults: everything ends, and everything captured is read.
    async fn ends(&self) -> anyhow::Result<()> {
        for process in &self.processes {
            process.running.lock().await.clear();
        }
        let ledger = self.kit.process();
        for _ in 0..ROUNDS_TO_END {
            let mut open = 0;
            for scope in &self.scopes {
                open += usize::from(!matches!(ledger.flush(request(scope)).await?, Flushed::Idle { .. }));
                self.kit.lapse_scope(scope).await?;
            }
            ledger.recover().await?;
            self.kit.all_due().await?;
            for id in self.kit.live().await? {
                let row = self.kit.row(id).await?;
                open += 1;
                if matches!(row.item.state, WorkState::Failed { .. }) {
                    ledger.retry(id, row.item.version).await?;
                }
            }
            for claimed in claim(&ledger, 64).await? {
                ensure!(self.kit.finish(&ledger, &claimed).await? == Ended::Succeeded);
            }
            self.check().await?;
            if open == 0 {
                return Ok(());
            }
        }
        anyhow::bail!("work is left after {ROUNDS_TO_END} rounds without faults")
    }
}

async fn beat(process: &Process) -> anyhow::Result<()> {
    let mut running = process.running.lock().await;
    let held = running.iter().map(|run| run.claimed.held.clone()).collect();
    for (id, beat) in process.ledger.heartbeat(held).await? {
        if beat == Beat::Lost {
            running.retain(|run| *run.claimed.held.key() != id);
        }
    }
    Ok(())
}

fn ends(ended: Result<Ended, TxError>) -> anyhow::Result<()> {
    match ended? {
        Ended::Succeeded => anyhow::bail!("a run that failed succeeded"),
        _ => Ok(()),
    }
}
