//! Gauges that are read when somebody scrapes, and only then: an idle process reads nothing for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use powercontext_core::supervise::member::Member;

use crate::api::ledger_app::surroundings::Surroundings;
use crate::ledger::Ledger;
use crate::store::works::Depth;
use crate::store::{Dialect, Tx, TxError, TxName, intents, members, upkeep, works};
use crate::telemetry::metrics::{FamilyDepth, Metrics, QueueDepth};

use powercontext_core::ids::BindingName;
use powercontext_core::time::DbTime;

struct Read {
    now: DbTime,
    depths: Vec<Depth>,
    payloads: Vec<(u32, u64)>,
    revision: u32,
    members: Vec<Member>,
    owed: Vec<u64>,
}

/// Reads them all. What cannot be read keeps its value.
pub(super) async fn refresh(ledger: &Ledger, around: &Surroundings, metrics: &Metrics) {
    if let Some(in_flight) = &around.in_flight {
        metrics.set_inflight(in_flight().0);
    }
    let bindings: Vec<BindingName> = ledger.kinds().iter().map(|spec| spec.binding.clone()).collect();
    let read = ledger
        .db()
        .read_with(TxName::Gauges, &Arc::new(bindings), |tx, bindings| {
            Box::pin(read(tx, bindings))
        })
        .await;
    match read {
        Ok(read) => show(ledger, metrics, &read),
        Err(error) => tracing::warn!(error = %error, "the gauges could not be read for a scrape"),
    }
}

async fn read(tx: &mut Tx, bindings: &[BindingName]) -> Result<Read, TxError> {
    let mut owed = Vec::with_capacity(bindings.len());
    for binding in bindings {
        owed.push(intents::owed(tx, binding).await?);
    }
    // A single node on its file has no members.
    let members = match tx.dialect() {
        Dialect::OceanBase => members::live(tx).await?,
        Dialect::Sqlite => Vec::new(),
    };
    Ok(Read {
        now: tx.now().await?,
        depths: works::depths(tx).await?,
        payloads: upkeep::payload_depths(tx).await?,
        revision: upkeep::revision(tx).await?,
        members,
        owed,
    })
}

fn show(ledger: &Ledger, metrics: &Metrics, read: &Read) {
    metrics.set_depths(read.depths.iter().map(|depth| QueueDepth {
        kind: &depth.kind,
        status: &depth.status,
        items: depth.items,
        oldest_age: read.now.since(depth.oldest),
    }));
    metrics.set_payload_depths(read.payloads.iter().copied());
    metrics.set_schema(read.revision);
    metrics.set_members(read.members.iter().map(|member| (member.role, member.build.as_str())));
    let mut found: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for depth in &read.depths {
        *found.entry((&depth.kind, &depth.status)).or_insert(0) += depth.items;
    }
    for (spec, owed) in ledger.kinds().iter().zip(&read.owed) {
        let items = |status| found.get(&(spec.kind.as_str(), status)).copied().unwrap_or(0);
        let depth = FamilyDepth {
            ready: items("queued"),
            retry_wait: items("retry_wait"),
            running: items("running") + items("cancelling"),
            unacknowledged: *owed,
        };
        metrics.set_family(spec.family.as_str(), depth);
    }
}
