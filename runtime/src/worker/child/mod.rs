//! Family code in processes of its own, one invocation each.
//!
//! The worker keeps the leases, the database and every transaction; a child gets the settings and secrets of one family and
//! the scope of one run over its standard input, asks for what it needs there, makes the model calls, and says how it ended.
//! A child that hangs, leaks or dies therefore costs its own run and nothing else, and no run can touch the database.
//! The slot of a run is free when its child is seen to have ended, never before.

mod job;
mod pool;
mod process;
mod serve;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkKind};

use crate::families::{Cancel, Done, HostError, ProcessorHost};
use crate::worker::child::pool::Pool;
use crate::worker::child::process::Process;
use crate::worker::child::wire::{Answer, Ask, FromChild, Start, ToChild};
use crate::worker::executor::Executor;

pub use job::{FamilyJob, ModelJob};
pub use serve::{ChildExit, serve};

/// How children are started.
#[derive(Debug, Clone)]
pub struct ChildSettings {
    /// The program; every child is `program worker-child --parent PID`.
    pub program: PathBuf,
    /// Started ahead of their invocation, so that a run does not wait for a process to start; 0 to 64.
    pub spares: usize,
    /// Log of the children, which goes to the standard error of this process.
    pub log: ChildLog,
}

impl ChildSettings {
    /// The program of this process itself, even when its file has been replaced since it started.
    pub fn this_program(concurrency: u32, log: ChildLog) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            spares: spares(concurrency),
            log,
        }
    }
}

/// Enough to start what one claim usually brings; a spare costs memory while it waits.
fn spares(concurrency: u32) -> usize {
    (concurrency / 4).clamp(1, 4) as usize
}

/// How a child logs.
#[derive(Debug, Clone, Copy)]
pub struct ChildLog {
    /// The finest level of our own modules.
    pub level: tracing::Level,
    /// How lines look.
    pub format: crate::telemetry::log::Format,
}

/// Runs each invocation in a child process.
pub struct Child {
    jobs: BTreeMap<WorkKind, FamilyJob>,
    log: ChildLog,
    pool: Arc<Pool>,
}

impl Child {
    /// An executor of these families; starts its first spare children. Must be called inside the runtime that will run it.
    pub fn new(jobs: impl IntoIterator<Item = (WorkKind, FamilyJob)>, settings: ChildSettings) -> Self {
        let jobs: BTreeMap<_, _> = jobs.into_iter().collect();
        let spares = if jobs.is_empty() { 0 } else { settings.spares };
        let pool = Pool::new(settings.program, spares);
        Pool::refill(&pool);
        Self {
            jobs,
            log: settings.log,
            pool,
        }
    }

    async fn hand_over(&self, kind: &WorkKind, scope: &ScopeId) -> Result<Process, FailCode> {
        let job = self.jobs.get(kind).ok_or(FailCode::FamilyUnavailable)?;
        let mut process = Pool::take(&self.pool).await.map_err(|error| {
            tracing::error!(error = error.kind().to_string(), "no child process can be started");
            FailCode::Unhandled
        })?;
        let start = ToChild::Start(Box::new(Start {
            scope: scope.clone(),
            family: job.clone(),
            log: self.log.into(),
        }));
        match process.send(&start).await {
            Ok(()) => Ok(process),
            Err(fault) => Err(broken(process, fault).await),
        }
    }
}

#[async_trait]
impl Executor for Child {
    fn knows(&self, kind: &WorkKind) -> bool {
        self.jobs.contains_key(kind)
    }

    fn is_elsewhere(&self, _kind: &WorkKind) -> bool {
        true
    }

    async fn run(
        &self,
        kind: &WorkKind,
        scope: &ScopeId,
        host: Arc<dyn ProcessorHost>,
        cancel: &Cancel,
    ) -> Result<Done, FailCode> {
        let mut process = self.hand_over(kind, scope).await?;
        loop {
            let step = tokio::select! {
                biased;
                () = cancel.raised() => None,
                step = step(&mut process, &*host) => Some(step),
            };
            match step {
                None => {
                    process.stop().await;
                    return Err(FailCode::CancelRequested);
                }
                Some(Ok(Step::Answered)) => {}
                Some(Ok(Step::Ended(result))) => {
                    process.end().await;
                    return result.map(|done| *done);
                }
                Some(Err(fault)) => return Err(broken(process, fault).await),
            }
        }
    }
}

/// What one message of a child came to.
enum Step {
    Answered,
    Ended(Result<Box<Done>, FailCode>),
}

/// Reads one message of the child and answers it.
async fn step(process: &mut Process, host: &dyn ProcessorHost) -> Result<Step, wire::WireFault> {
    match process.receive().await? {
        FromChild::Ready => Ok(Step::Answered),
        FromChild::End(result) => Ok(Step::Ended(result)),
        FromChild::Ask(ask) => {
            let answer = ToChild::Answer(Box::new(answer(ask, host).await));
            process.send(&answer).await?;
            Ok(Step::Answered)
        }
    }
}

async fn answer(ask: Ask, host: &dyn ProcessorHost) -> Result<Answer, HostError> {
    Ok(match ask {
        Ask::Load(request) => Answer::Loaded(host.load(request).await?),
        Ask::Search(request) => Answer::Hits(host.search(request).await?),
        Ask::Reserve(request) => Answer::Reserved(host.reserve(request).await?),
        Ask::CommitWindow(write) => Answer::Committed(host.commit_window(*write).await?),
    })
}

/// Ends a child that broke off, and says so: its end was never acknowledged, whatever it did.
async fn broken(process: Process, fault: wire::WireFault) -> FailCode {
    let exit = process.stop().await;
    tracing::warn!(error = %fault, exit = %exit, "a child process ended without saying what became of its run");
    FailCode::MissingDurableAcknowledgement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_slots_is_kept_warm_at_least_one_and_at_most_four() {
        for (concurrency, expected) in [(1, 1), (4, 1), (8, 2), (16, 4), (256, 4)] {
            assert_eq!(spares(concurrency), expected, "{concurrency}");
        }
    }
}
