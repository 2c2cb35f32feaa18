//! `powercontext server work`: live work as the ledger has it, internal kinds included, and what an operator does to it, one by
//! one or in bulk by error code.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, Subcommand};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{WorkId, WorkKind};
use powercontext_core::work::WorkState;
use serde_json::json;

use super::database::{exit_of_tx, open};
use super::{Exit, FileArgs, Output, Streams, load_database, start_log, tell_faults};
use crate::config::Settings;
use crate::ledger::{KindSpec, Kinds, LeaseTerm, Ledger, OperatorError};
use crate::rt;
use crate::store::upkeep::{self, Filter};
use crate::store::works::WorkRow;
use crate::store::{TxError, TxName};

/// Items read at once.
const PAGE: u32 = 100;
/// Items that are shown or acted on unless more are asked for.
const LIMIT: usize = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum WorkCommand {
    /// Show work that is not over
    List(ListArgs),
    /// Queue failed work again
    Retry(ActArgs),
    /// Cancel work that is not over
    Cancel(ActArgs),
}

#[derive(Debug, Args)]
struct Which {
    /// Only of this kind, such as `powercontext.memory.source-window`
    #[arg(long)]
    kind: Option<String>,
    /// Only with this error code, such as `provider_timeout`
    #[arg(long)]
    error_code: Option<String>,
    /// Most items, in the order of their ids
    #[arg(long, default_value_t = LIMIT)]
    limit: usize,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only in this state: queued, running, `retry_wait`, cancelling or failed
    #[arg(long)]
    status: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Form of what is shown
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Args)]
pub(super) struct ActArgs {
    /// The items
    #[arg(value_name = "ID", required_unless_present = "error_code", conflicts_with_all = ["error_code", "kind"])]
    ids: Vec<String>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Retry,
    Cancel,
}

impl Act {
    const fn done(self) -> &'static str {
        match self {
            Self::Retry => "queued again",
            Self::Cancel => "cancelled",
        }
    }
}

/// Runs the command.
pub(super) async fn run(command: WorkCommand, env: BTreeMap<String, String>, streams: &mut Streams<'_>) -> Exit {
    let (file, wanted) = match command {
        WorkCommand::List(args) => (
            args.file,
            Wanted::list(args.status.as_deref(), &args.which, args.output),
        ),
        WorkCommand::Retry(args) => (args.file, Wanted::act(Act::Retry, &args.ids, &args.which)),
        WorkCommand::Cancel(args) => (args.file, Wanted::act(Act::Cancel, &args.ids, &args.which)),
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(fault) => {
            streams.complain(fault);
            return Exit::BadConfiguration;
        }
    };
    let settings = match load_database(env, file) {
        Ok(settings) => settings,
        Err(faults) => return tell_faults(&faults, streams),
    };
    start_log(&settings);
    let opened = match open(&settings, streams).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let ledger = ledger(&settings, opened.db.clone());
    let ended = wanted.run(&ledger, streams).await;
    opened.db.close().await;
    ended.unwrap_or_else(|error| {
        streams.complain(format_args!("The work could not be read or changed: {error}."));
        exit_of_tx(&error)
    })
}

fn ledger(settings: &Settings, db: crate::store::Db) -> Ledger {
    let kinds = Kinds::new([KindSpec::memory(settings.memory.retry), KindSpec::maintenance()]);
    let lease = LeaseTerm::Timed(settings.worker.lease);
    Ledger::new(db, kinds, rt::member_id(), lease)
}

enum Wanted {
    List(Filter, usize, Output),
    Ids(Act, Vec<WorkId>),
    Bulk(Act, Filter, usize),
}

impl Wanted {
    fn filter(which: &Which) -> Result<Filter, String> {
        let kind = which.kind.clone().map(WorkKind::parse).transpose();
        let code = which.error_code.clone();
        if code
            .as_ref()
            .is_some_and(|code| FailCode::ALL.iter().all(|known| known.code() != code))
        {
            let known: Vec<_> = FailCode::ALL.iter().map(|code| code.code()).collect();
            return Err(format!("--error-code must be one of {}", known.join(", ")));
        }
        Ok(Filter {
            status: None,
            kind: kind.map_err(|fault| format!("--kind {fault}"))?,
            code,
            after: None,
        })
    }

    fn list(status: Option<&str>, which: &Which, output: Output) -> Result<Self, String> {
        let live = ["queued", "running", "retry_wait", "cancelling", "failed"];
        let status = match status {
            None => None,
            Some(status) => {
                let known = live.into_iter().find(|known| *known == status);
                Some(known.ok_or_else(|| format!("--status must be one of {}", live.join(", ")))?)
            }
        };
        let filter = Filter {
            status,
            ..Self::filter(which)?
        };
        Ok(Self::List(filter, which.limit, output))
    }

    fn act(act: Act, ids: &[String], which: &Which) -> Result<Self, String> {
        if ids.is_empty() {
            let status = (act == Act::Retry).then_some("failed");
            let filter = Filter {
                status,
                ..Self::filter(which)?
            };
            return Ok(Self::Bulk(act, filter, which.limit));
        }
        let ids: Result<Vec<WorkId>, _> = ids.iter().map(|id| WorkId::parse(id)).collect();
        ids.map(|ids| Self::Ids(act, ids))
            .map_err(|_| "an id of work is a UUID, as `powercontext server work list` shows it".to_owned())
    }

    async fn run(self, ledger: &Ledger, streams: &mut Streams<'_>) -> Result<Exit, TxError> {
        match self {
            Self::List(filter, limit, output) => list(ledger, filter, limit, output, streams).await,
            Self::Ids(act, ids) => {
                let mut tally = Tally::default();
                for id in ids {
                    if let Some(row) = ledger.work(id).await? {
                        tally.count(apply(ledger, act, &row).await?);
                    } else {
                        streams.complain(format_args!("There is no work {id}."));
                        tally.passed += 1;
                    }
                }
                Ok(tally.tell(act, streams))
            }
            Self::Bulk(act, mut filter, limit) => {
                let mut tally = Tally::default();
                while tally.total() < limit {
                    let page = page(ledger, &filter).await?;
                    for row in page.iter().take(limit - tally.total()) {
                        tally.count(apply(ledger, act, row).await?);
                    }
                    filter.after = page.last().map(|row| row.item.id);
                    if page.len() < PAGE as usize {
                        break;
                    }
                }
                Ok(tally.tell(act, streams))
            }
        }
    }
}

#[derive(Default)]
struct Tally {
    done: usize,
    passed: usize,
}

impl Tally {
    fn total(&self) -> usize {
        self.done + self.passed
    }

    fn count(&mut self, is_done: bool) {
        if is_done {
            self.done += 1;
        } else {
            self.passed += 1;
        }
    }

    fn tell(&self, act: Act, streams: &mut Streams<'_>) -> Exit {
        streams.say(format_args!(
            "{} {}, {} passed over.",
            self.done,
            act.done(),
            self.passed
        ));
        if self.done == 0 && self.passed > 0 {
            Exit::Refused
        } else {
            Exit::Done
        }
    }
}

/// Whether it happened; an item whose state does not take the act, or that moved on meanwhile, is passed over.
async fn apply(ledger: &Ledger, act: Act, row: &WorkRow) -> Result<bool, TxError> {
    let (id, version) = (row.item.id, row.item.version);
    let acted = match act {
        Act::Retry => ledger.retry_on_host(id, version).await,
        Act::Cancel => ledger.cancel_on_host(id, version).await,
    };
    match acted {
        Ok(_) => Ok(true),
        Err(OperatorError::Tx(error)) => Err(error),
        Err(OperatorError::NotFound | OperatorError::Conflict { .. }) => Ok(false),
    }
}

async fn page(ledger: &Ledger, filter: &Filter) -> Result<Vec<WorkRow>, TxError> {
    let filter = Arc::new(filter.clone());
    let read = ledger.db().read_with(TxName::Operations, &filter, |tx, filter| {
        Box::pin(upkeep::find(tx, filter, PAGE))
    });
    read.await
}

async fn list(
    ledger: &Ledger,
    mut filter: Filter,
    limit: usize,
    output: Output,
    streams: &mut Streams<'_>,
) -> Result<Exit, TxError> {
    let mut shown = 0;
    while shown < limit {
        let page = page(ledger, &filter).await?;
        for row in page.iter().take(limit - shown) {
            streams.say(line(row, output));
            shown += 1;
        }
        filter.after = page.last().map(|row| row.item.id);
        if page.len() < PAGE as usize {
            break;
        }
    }
    if output == Output::Text {
        streams.say(format_args!("{shown} shown."));
    }
    Ok(Exit::Done)
}

fn line(row: &WorkRow, output: Output) -> String {
    let (state, error) = (row.item.state.name(), row.error.as_ref());
    let code = error.map(|(_, code)| code.as_str());
    let member = row.item.state.run().map(|run| run.holder.member.to_string());
    let due = match &row.item.state {
        WorkState::Queued { due } | WorkState::RetryWait { due, .. } => Some(due.micros() / 1000),
        _ => None,
    };
    match output {
        Output::Json => json!({
            "id": row.item.id.to_string(),
            "kind": row.kind.as_str(),
            "scope_id": row.scope.as_str(),
            "status": state,
            "version": row.item.version,
            "attempts": row.item.counters.attempts,
            "error_code": code,
            "member": member,
            "due_ms": due,
        })
        .to_string(),
        Output::Text => format!(
            "{}  {:<10}  {}  {}  attempts {}  {}",
            row.item.id,
            state,
            row.kind,
            row.scope,
            row.item.counters.attempts,
            code.unwrap_or("-")
        ),
    }
}
