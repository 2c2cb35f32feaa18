//! The finish that is decided ahead and the general one leave the same rows from the same start, whatever was done to the
//! item, its lane and its intent meanwhile (ADR 0017).

use std::fmt::Write as _;

use anyhow::Context;
use powercontext::ledger::{Claimed, Done, Ended, Ledger};
use powercontext::rt;
use powercontext::store::TxError;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;

use crate::ledger_kit::{Kit, binding, claim, on_both_engines_alone};

on_both_engines_alone! {
    each_thing_that_may_happen_leads_to_the_same_rows,
    a_random_history_leads_to_the_same_rows,
    where_nothing_happened_the_usual_finish_is_taken,
}

const TABLES: [&str; 5] = [
    "pc_work_items",
    "pc_work_attempts",
    "pc_work_lanes",
    "pc_work_keys",
    "pc_artifact_processing_intents",
];

/// What may happen to a scope while its item runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// A source comes, which marks the intent dirty.
    Capture,
    /// A request: it joins, or waits behind.
    Flush,
    /// The item that waits behind is cancelled.
    CancelBehind,
    /// An operator asks for the end of the run.
    Cancel,
    /// The lease runs out.
    Lapse,
    /// The lease runs out and another process takes the item.
    TakeOver,
    /// The lease is renewed.
    Beat,
    /// Another writer moves the cursor.
    MoveCursor,
    /// The key row is lost.
    LoseKey,
    /// The intent is lost.
    LoseIntent,
    /// The attempt was closed by somebody.
    CloseAttempt,
    /// The lane's head is moved.
    MoveHead,
}

const ACTS: [Act; 12] = [
    Act::Capture,
    Act::Flush,
    Act::CancelBehind,
    Act::Cancel,
    Act::Lapse,
    Act::TakeOver,
    Act::Beat,
    Act::MoveCursor,
    Act::LoseKey,
    Act::LoseIntent,
    Act::CloseAttempt,
    Act::MoveHead,
];

async fn act(kit: &Kit, act: Act, scope: &ScopeId, claimed: &Claimed) -> anyhow::Result<()> {
    let id = *claimed.held.key();
    let mut raw = kit.raw().await?;
    match act {
        Act::Capture => drop(kit.capture(scope).await?),
        // What the product refuses here it refuses in both histories.
        Act::Flush => drop(kit.flush(scope).await),
        Act::CancelBehind => {
            if let Some(behind) = kit.live().await?.into_iter().find(|live| *live != id) {
                drop(kit.a.cancel(behind, kit.row(behind).await?.item.version).await);
            }
        }
        Act::Cancel => drop(kit.a.cancel(id, kit.row(id).await?.item.version).await),
        Act::Lapse => {
            let ago = raw.ago(1);
            raw.execute(&format!(
                "update pc_work_items set lease_expires_at = {ago} where work_id = '{id}' and lease_owner is not null"
            ))
            .await?;
        }
        Act::TakeOver => {
            let ago = raw.ago(1);
            raw.execute(&format!(
                "update pc_work_items set lease_expires_at = {ago} where work_id = '{id}' and lease_owner is not null"
            ))
            .await?;
            drop(kit.b.recover().await);
            drop(claim(&kit.b, 64).await);
        }
        Act::Beat => drop(kit.a.heartbeat(vec![claimed.held.clone()]).await),
        Act::MoveCursor => {
            let move_it =
                format!("update pc_source_cursors set generation = generation + 1 where scope_id = '{scope}'");
            if raw.execute(&move_it).await? == 0 {
                raw.execute(&format!(
                    "insert into pc_source_cursors (scope_id, binding_name, sequence, generation)
                     values ('{scope}', '{}', 1, 1)",
                    binding()
                ))
                .await?;
            }
        }
        Act::LoseKey => {
            raw.execute(&format!("delete from pc_work_keys where work_id = '{id}'"))
                .await?;
        }
        Act::LoseIntent => {
            raw.execute(&format!(
                "delete from pc_artifact_processing_intents where scope_id = '{scope}'"
            ))
            .await?;
        }
        Act::CloseAttempt => {
            raw.execute(&format!(
                "update pc_work_attempts set outcome = 'failed', finished_at = started_at, heartbeat_at = started_at where work_id = '{id}'
                   and finished_at is null"
            ))
            .await?;
        }
        Act::MoveHead => {
            raw.execute(&format!(
                "update pc_work_lanes set head_sequence = head_sequence + 1, next_sequence = next_sequence + 1
                 where lane_key = '{}'",
                kit.row(id).await?.lane_key
            ))
            .await?;
        }
    }
    Ok(())
}

/// The rows of a scope, without what two runs of one history cannot share: ids, digests and times.
async fn rows(kit: &Kit, scope: &ScopeId) -> anyhow::Result<String> {
    let mut raw = kit.raw().await?;
    let works = format!("select work_id from pc_work_items where scope_id = '{scope}'");
    let lanes = format!("select lane_key from pc_work_items where scope_id = '{scope}'");
    let tables = [
        (
            3,
            "status, result_code, cast(result_payload as char), lane_sequence, lease_owner is null, lease_fence, lease_expires_at is null,
             attempt_count, generation_attempt_count, recovery_generation, conflict_streak, cancel_requested + 0,
             claimed_request_generation, claimed_dirty, state_version, ready_at is null, completed_at is null,
             error_category is null, available_at = updated_at",
            format!("pc_work_items where scope_id = '{scope}' order by lane_sequence"),
        ),
        (
            3,
            "outcome, error_category, error_code, attempt_no, fence, recovery_generation, finished_at is null,
             heartbeat_at = finished_at",
            format!("pc_work_attempts where work_id in ({works}) order by fence, attempt_no"),
        ),
        (0, "head_sequence, next_sequence", format!("pc_work_lanes where lane_key in ({lanes})")),
        (0, "count(*)", format!("pc_work_keys where lane_key in ({lanes})")),
        (
            0,
            "dirty_generation, clean_generation, requested_generation, handled_generation, is_dirty + 0, is_owed + 0",
            format!("pc_artifact_processing_intents where scope_id = '{scope}'"),
        ),
        (0, "sequence, generation", format!("pc_source_cursors where scope_id = '{scope}'")),
    ];
    let mut all = String::new();
    for (texts, columns, from) in tables {
        let count = columns.split(',').count();
        for row in raw.rows(&format!("select {columns} from {from}")).await? {
            for column in 0..count {
                if column < texts {
                    write!(all, "{:?} ", row.opt_text(column)?)?;
                } else {
                    write!(all, "{:?} ", row.opt_int(column)?)?;
                }
            }
            all.push('\n');
        }
        all.push_str("--\n");
    }
    Ok(all)
}

/// How a run reads its input before what happens happens.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Whether it has failed once before.
    is_second: bool,
    /// Whether it writes the cursor, or found nothing to do.
    writes: bool,
}

async fn finish(ledger: &Ledger, claimed: &Claimed, done: Done) -> Result<Ended, TxError> {
    match ledger.finish(claimed, done).await {
        // When it waits for, and nothing else, differs between two runs.
        Ok(Ended::Waits { outcome, .. }) => Ok(Ended::Waits {
            due: powercontext_core::time::DbTime::from_micros(0),
            outcome,
        }),
        ended => ended,
    }
}

/// Plays one history in a scope of its own and answers how the finish ended, and the rows behind it.
async fn play(kit: &Kit, name: &str, run: Run, acts: &[Act], is_usual: bool) -> anyhow::Result<(String, String)> {
    let (scope, mut claimed) = kit.running(name).await?;
    if run.is_second {
        kit.a.fail(&claimed, FailCode::ProviderTimeout).await?;
        kit.all_due().await?;
        claimed = claim(&kit.a, 1).await?.pop().context("nothing to claim")?;
    }
    let mut done = kit.done(&scope).await?;
    if !run.writes {
        done.write = None;
    }
    for what in acts {
        act(kit, *what, &scope, &claimed)
            .await
            .with_context(|| format!("{what:?}"))?;
    }
    if !is_usual {
        claimed.usual = None;
    }
    let ended = finish(&kit.a, &claimed, done).await;
    let rows = rows(kit, &scope).await?;
    // Out of the way of the next history's claim.
    let mut raw = kit.raw().await?;
    for table in TABLES {
        raw.execute(&format!("delete from {table}")).await?;
    }
    Ok((format!("{ended:?}"), rows))
}

async fn same(kit: &Kit, name: &str, run: Run, acts: &[Act]) -> anyhow::Result<()> {
    let usual = play(kit, &format!("{name} usual"), run, acts, true).await?;
    let general = play(kit, &format!("{name} general"), run, acts, false).await?;
    assert_eq!(usual, general, "{name}: {run:?} {acts:?}");
    Ok(())
}

async fn each_thing_that_may_happen_leads_to_the_same_rows(kit: &Kit) -> anyhow::Result<()> {
    for (n, act) in ACTS.into_iter().enumerate() {
        for writes in [true, false] {
            let run = Run {
                is_second: n % 2 == 0,
                writes,
            };
            same(kit, &format!("{act:?} {writes}"), run, &[act]).await?;
        }
    }
    Ok(())
}

async fn a_random_history_leads_to_the_same_rows(kit: &Kit) -> anyhow::Result<()> {
    const HISTORIES: usize = 25;
    for n in 0..HISTORIES {
        let draw = |most: usize| rt::random() as usize % most;
        let run = Run {
            is_second: draw(2) == 0,
            writes: draw(2) == 0,
        };
        let acts: Vec<Act> = (0..draw(6)).map(|_| ACTS[draw(ACTS.len())]).collect();
        same(kit, &format!("history {n}"), run, &acts).await?;
    }
    Ok(())
}

async fn where_nothing_happened_the_usual_finish_is_taken(kit: &Kit) -> anyhow::Result<()> {
    for (writes, is_usual) in [(true, true), (false, true), (true, false), (false, false)] {
        let (scope, mut claimed) = kit.running(&format!("{writes} {is_usual}")).await?;
        let mut done = kit.done(&scope).await?;
        if !writes {
            done.write = None;
        }
        if !is_usual {
            claimed.usual = None;
        }
        // The general finish reads the row, and this one cannot be read.
        let mut raw = kit.raw().await?;
        raw.execute(&format!(
            "update pc_work_items set logical_key = 'unreadable' where work_id = '{}'",
            claimed.held.key()
        ))
        .await?;
        let ended = kit.a.finish(&claimed, done).await;
        if is_usual {
            assert_eq!(ended, Ok(Ended::Succeeded), "writes: {writes}");
        } else {
            assert!(matches!(ended, Err(TxError::Corrupt(_))), "writes: {writes}: {ended:?}");
        }
        for table in TABLES {
            raw.execute(&format!("delete from {table}")).await?;
        }
    }
    Ok(())
}
