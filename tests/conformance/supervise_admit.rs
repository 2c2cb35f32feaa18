//! Admission of one scope, and the lease that stands behind it.

use std::collections::BTreeSet;

use powercontext::ledger::{Cause, Ended};
use powercontext::store::modes::Term;
use powercontext::store::{FenceLost, TxError};
use powercontext::supervisor::switch::switch_mode;
use powercontext_core::ids::FamilyName;
use powercontext_core::supervise::mode::{Mode, SupervisorKey};

use crate::ledger_kit::{Kit, claim_one, on_both_engines_alone};
use crate::supervise_kit::scan;

on_both_engines_alone! {
    a_dirty_scope_is_admitted_once_by_a_scan_and_again_by_a_later_one,
    a_scope_without_pending_input_is_not_admitted,
    a_busy_scope_is_marked_and_gets_no_second_item,
    a_flush_joins_what_a_scan_admitted,
    a_leader_whose_term_is_over_changes_no_row,
    what_is_owed_and_has_no_item_is_taken_up_without_raising_it,
    a_term_belongs_to_one_process_and_its_fence_grows,
    a_candidate_of_another_mode_is_refused_and_a_switch_ends_every_term,
    the_leases_of_families_are_apart,
}

async fn a_dirty_scope_is_admitted_once_by_a_scan_and_again_by_a_later_one(kit: &Kit) -> anyhow::Result<()> {
    let (term, scope) = (kit.term(&kit.a).await?, kit.scope_with_source("s").await?);
    let id = kit.admit(&kit.a, &term, &scope, scan(1)).await?;
    assert!(id.is_some());
    assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 0]);
    let claimed = claim_one(&kit.b).await?;
    assert_eq!(Some(*claimed.held.key()), id);
    assert_eq!(kit.finish(&kit.b, &claimed).await?, Ended::Succeeded);
    kit.capture(&scope).await?;
    assert_eq!(
        kit.admit(&kit.a, &term, &scope, scan(1)).await?,
        None,
        "this scan was here"
    );
    assert_eq!(kit.counters(&scope).await?, [2, 1, 1, 1]);
    assert!(kit.admit(&kit.a, &term, &scope, scan(2)).await?.is_some());
    assert_eq!(kit.counters(&scope).await?, [2, 1, 2, 1]);
    Ok(())
}

async fn a_scope_without_pending_input_is_not_admitted(kit: &Kit) -> anyhow::Result<()> {
    let term = kit.term(&kit.a).await?;
    let scope = kit.scope("unknown")?;
    for cause in [scan(1), Cause::Debt] {
        assert_eq!(kit.admit(&kit.a, &term, &scope, cause).await?, None);
    }
    let (scope, claimed) = kit.running("clean").await?;
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    for cause in [scan(1), Cause::Debt] {
        assert_eq!(kit.admit(&kit.a, &term, &scope, cause).await?, None);
    }
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    Ok(())
}

async fn a_busy_scope_is_marked_and_gets_no_second_item(kit: &Kit) -> anyhow::Result<()> {
    let term = kit.term(&kit.a).await?;
    let (scope, claimed) = kit.running("s").await?;
    kit.capture(&scope).await?;
    assert_eq!(kit.admit(&kit.b, &term, &scope, scan(3)).await?, None);
    assert_eq!(kit.live().await?.len(), 1);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    // It read one source of two; the scan that saw it busy does not come back to it.
    kit.capture(&scope).await?;
    assert_eq!(kit.admit(&kit.b, &term, &scope, scan(3)).await?, None);
    assert!(kit.admit(&kit.b, &term, &scope, scan(4)).await?.is_some());
    Ok(())
}

async fn a_flush_joins_what_a_scan_admitted(kit: &Kit) -> anyhow::Result<()> {
    let (term, scope) = (kit.term(&kit.a).await?, kit.scope_with_source("s").await?);
    let admitted = kit.admit(&kit.a, &term, &scope, scan(1)).await?;
    let (id, created) = kit.accepted(&scope).await?;
    assert_eq!((Some(id), created), (admitted, false));
    Ok(())
}

async fn a_leader_whose_term_is_over_changes_no_row(kit: &Kit) -> anyhow::Result<()> {
    let (old, scope) = (kit.term(&kit.a).await?, kit.scope_with_source("s").await?);
    kit.end_terms().await?;
    let late = kit.admit(&kit.a, &old, &scope, scan(1)).await;
    assert_eq!(late, Err(TxError::Fenced(FenceLost::Lease)), "its time is over");
    let new = kit.term(&kit.b).await?;
    assert!(new.fence() > old.fence());
    for cause in [scan(1), Cause::Debt] {
        let late = kit.admit(&kit.a, &old, &scope, cause).await;
        assert!(
            matches!(late, Err(TxError::Fenced(FenceLost::Lease)) | Ok(None)),
            "{late:?}"
        );
    }
    assert_eq!(kit.counters(&scope).await?, [1, 0, 0, 0]);
    assert!(kit.live().await?.is_empty());
    assert!(kit.admit(&kit.b, &new, &scope, scan(1)).await?.is_some());
    Ok(())
}

async fn what_is_owed_and_has_no_item_is_taken_up_without_raising_it(kit: &Kit) -> anyhow::Result<()> {
    let (term, scope) = (kit.term(&kit.a).await?, kit.scope_with_source("s").await?);
    kit.accepted(&scope).await?;
    let mut raw = kit.raw().await?;
    for table in ["pc_work_items", "pc_work_keys", "pc_work_lanes"] {
        raw.execute(&format!("delete from {table}")).await?;
    }
    assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 0]);
    assert!(kit.admit(&kit.a, &term, &scope, Cause::Debt).await?.is_some());
    assert_eq!(kit.admit(&kit.a, &term, &scope, Cause::Debt).await?, None);
    assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 0]);
    let claimed = claim_one(&kit.b).await?;
    assert_eq!(kit.finish(&kit.b, &claimed).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    Ok(())
}

async fn a_term_belongs_to_one_process_and_its_fence_grows(kit: &Kit) -> anyhow::Result<()> {
    let first = kit.term(&kit.a).await?;
    assert_eq!(
        kit.stand(&kit.b, &SupervisorKey::Global, Mode::Global).await?,
        Term::Lost
    );
    assert_eq!(
        kit.term(&kit.a).await?.fence(),
        first.fence(),
        "its own lease is extended"
    );
    kit.end_terms().await?;
    let second = kit.term(&kit.a).await?;
    assert!(second.fence() > first.fence(), "also for the same process");
    kit.end_terms().await?;
    assert!(kit.term(&kit.b).await?.fence() > second.fence());
    Ok(())
}

async fn a_candidate_of_another_mode_is_refused_and_a_switch_ends_every_term(kit: &Kit) -> anyhow::Result<()> {
    let memory = SupervisorKey::Artifact(FamilyName::memory());
    let old = kit.term(&kit.a).await?;
    let refused = Term::ForeignMode { stored: Mode::Global };
    assert_eq!(kit.stand(&kit.b, &memory, Mode::Dedicated).await?, refused);
    assert_eq!(switch_mode(kit.db(), Mode::Dedicated).await?, Some(Mode::Global));
    let scope = kit.scope_with_source("s").await?;
    let late = kit.admit(&kit.a, &old, &scope, scan(1)).await;
    assert_eq!(late, Err(TxError::Fenced(FenceLost::Lease)));
    let refused = Term::ForeignMode {
        stored: Mode::Dedicated,
    };
    assert_eq!(kit.stand(&kit.a, &SupervisorKey::Global, Mode::Global).await?, refused);
    let Term::Won(term) = kit.stand(&kit.b, &memory, Mode::Dedicated).await? else {
        anyhow::bail!("not won");
    };
    assert!(kit.admit(&kit.b, &term, &scope, scan(1)).await?.is_some());
    // And back again: the generation of the old lease has grown, so its old term stays dead.
    assert_eq!(switch_mode(kit.db(), Mode::Global).await?, Some(Mode::Dedicated));
    assert!(kit.term(&kit.a).await?.fence() > old.fence());
    let late = kit.admit(&kit.a, &old, &scope, scan(2)).await;
    assert_eq!(late, Err(TxError::Fenced(FenceLost::Lease)));
    Ok(())
}

async fn the_leases_of_families_are_apart(kit: &Kit) -> anyhow::Result<()> {
    let key = |name| anyhow::Ok(SupervisorKey::Artifact(FamilyName::parse(name)?));
    let mut holders = BTreeSet::new();
    for (ledger, name) in [(&kit.a, "memory"), (&kit.b, "profile")] {
        match kit.stand(ledger, &key(name)?, Mode::Dedicated).await? {
            Term::Won(held) => holders.insert(held.member().to_string()),
            other => anyhow::bail!("{name}: {other:?}"),
        };
    }
    assert_eq!(holders.len(), 2);
    assert_eq!(kit.stand(&kit.b, &key("memory")?, Mode::Dedicated).await?, Term::Lost);
    Ok(())
}
