//! Checks that were missed, and marks that were lost, after a time without a leader.

use std::collections::BTreeSet;
use std::sync::Arc;

use powercontext::store::TxName;
use powercontext::store::sources;
use powercontext_core::ids::ScopeId;
use powercontext_core::schedule::{Due, Schedule};
use powercontext_core::supervise::mode::Mode;
use powercontext_core::supervise::scan::ScanGeneration;
use powercontext_core::time::Span;

use crate::ledger_kit::{Kit, binding, claim_one, on_both_engines_alone};
use crate::supervise_kit::{LONG_TERM, Process, settings};

on_both_engines_alone! {
    an_hour_of_missed_checks_is_one_check,
    journals_are_compared_with_cursors_in_pages_of_bounded_length,
}

async fn an_hour_of_missed_checks_is_one_check(kit: &Kit) -> anyhow::Result<()> {
    let schedule = Schedule::Interval(Span::seconds(15));
    let mut raw = kit.raw().await?;
    let ago = raw.ago(3600);
    raw.execute(&format!(
        "insert into pc_artifact_processing_binding_states (binding_name, last_schedule_checkpoint_at, scan_generation, updated_at)
         values ('{}', {ago}, 7, {ago})",
        binding()
    ))
    .await?;
    let scope = kit.scope_with_source("s").await?;
    let process = Process::start(&kit.a, schedule.clone(), settings(Mode::Global, LONG_TERM));
    kit.live_scopes(1).await?;
    let state = kit.scan_is("an ended scan", |state, _| state.upper.is_none()).await?;
    assert_eq!(state.generation, ScanGeneration::from_row(8), "one, not 240");
    let claimed = claim_one(&kit.b).await?;
    kit.finish(&kit.b, &claimed).await?;
    kit.capture(&scope).await?;
    // The next one is counted from the beginning of this one, and from no fire that was missed.
    let now = kit
        .db()
        .read(TxName::Ping, |tx| Box::pin(async move { tx.now().await }))
        .await?;
    let Due::At(next) = schedule.due(state.checkpoint, now) else {
        anyhow::bail!("the next check is due already: {state:?}");
    };
    assert!(next.since(now) > Span::seconds(1), "{next:?} at {now:?}");
    assert!(kit.live().await?.is_empty());
    process.stop().await
}

async fn journals_are_compared_with_cursors_in_pages_of_bounded_length(kit: &Kit) -> anyhow::Result<()> {
    const PAGE: u32 = 10;
    let mut wanted = BTreeSet::new();
    for n in 0..25 {
        wanted.insert(kit.scope_with_source(&format!("s{n}")).await?);
    }
    let mut raw = kit.raw().await?;
    raw.execute("delete from pc_artifact_processing_intents").await?;
    let (mut after, mut found, mut pages) = (None::<ScopeId>, BTreeSet::new(), Vec::new());
    loop {
        let input = Arc::new((binding(), after.clone()));
        let page = kit.db().read_with(TxName::Reconcile, &input, |tx, (binding, after)| {
            Box::pin(sources::unread(tx, binding, after.as_ref(), PAGE))
        });
        let page = page.await?;
        pages.push(page.lost.len());
        found.extend(page.lost);
        match page.last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    assert_eq!(found, wanted);
    assert!(
        pages.len() >= 3 && pages.iter().all(|lost| *lost <= PAGE as usize),
        "{pages:?}"
    );
    Ok(())
}
