//! Which replica leads: a `Lease` with the semantics of client-go.
//!
//! A candidate never compares the times in the lease with its own clock. It remembers when *it* saw the record change last
//! and takes over when the record has stood still for its whole duration. The leader renews and gives up by itself when it
//! could not renew for the deadline, which is shorter, so that two clocks that run at one speed never make two leaders.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rt;

/// How long a record that stands still keeps others away.
const DURATION: Duration = Duration::from_secs(15);
/// How long the leader goes on without a renewal.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two tries.
const RETRY: Duration = Duration::from_secs(2);
/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);

/// What a candidate remembers of the lease.
#[derive(Debug, Clone, Default)]
struct Seen {
    record: Option<LeaseSpec>,
    at: Option<Instant>,
}

impl Seen {
    /// Notes what the lease says; the clock starts again when it says something else.
    fn note(&mut self, record: &LeaseSpec, now: Instant) {
        if self.record.as_ref() != Some(record) {
            self.record = Some(record.clone());
            self.at = Some(now);
        }
    }

    /// Whether somebody else still holds what was noted.
    fn is_held_by_other(&self, me: &str, now: Instant) -> bool {
        let Some(record) = &self.record else { return false };
        let holder = record.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == me {
            return false;
        }
        let seconds = record.lease_duration_seconds.unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        self.at.is_some_and(|at| now < at + duration)
    }
}

/// The record with which `me` holds the lease from now on.
fn taken(old: Option<&LeaseSpec>, me: &str, now: Timestamp) -> LeaseSpec {
    let old = old.cloned().unwrap_or_default();
    let is_mine = old.holder_identity.as_deref() == Some(me);
    let transitions = old.lease_transitions.unwrap_or_default() + i32::from(!is_mine && old.holder_identity.is_some());
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(i32::try_from(DURATION.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: if is_mine {
            old.acquire_time
        } else {
            Some(MicroTime(now))
        },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// A candidate.
#[derive(Debug)]
pub struct Elector {
    api: Api<Lease>,
    name: String,
    me: String,
    seen: Seen,
}

impl Elector {
    /// A candidate for the lease of that name; `me` must be another name in every process.
    pub fn new(api: Api<Lease>, name: String, me: String) -> Self {
        Self {
            api,
            name,
            me,
            seen: Seen::default(),
        }
    }

    /// Waits until this process leads; `false` when it is asked to stop first.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        loop {
            if self.attempt().await {
                return true;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                () = rt::sleep(RETRY) => {}
            }
        }
    }

    /// Renews until it is asked to stop, then gives the lease back, or until it could not renew in time: then the lease is
    /// lost and `false` is returned.
    pub async fn hold(&mut self, stop: &CancellationToken) -> bool {
        let mut renewed = rt::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.release().await;
                    return true;
                }
                () = rt::sleep(RETRY) => {}
            }
            let asked = rt::now();
            let left = (renewed + DEADLINE).saturating_duration_since(asked);
            if left.is_zero() {
                return false;
            }
            if rt::within(left.min(REQUEST), self.try_once()).await == Some(true) {
                renewed = asked;
            }
        }
    }

    /// Takes or renews the lease if it can be had. An answer that does not come counts as no.
    async fn attempt(&mut self) -> bool {
        rt::within(REQUEST, self.try_once()).await.unwrap_or(false)
    }

    async fn try_once(&mut self) -> bool {
        let Ok(found) = self.api.get_opt(&self.name).await else {
            return false;
        };
        let Some(mut lease) = found else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(taken(None, &self.me, rt::time_of_day())),
            };
            return self.api.create(&PostParams::default(), &lease).await.is_ok();
        };
        let record = lease.spec.clone().unwrap_or_default();
        self.seen.note(&record, rt::now());
        if self.seen.is_held_by_other(&self.me, rt::now()) {
            return false;
        }
        lease.spec = Some(taken(Some(&record), &self.me, rt::time_of_day()));
        // The version that was read goes along: of two candidates that saw one record, one is refused.
        self.api
            .replace(&self.name, &PostParams::default(), &lease)
            .await
            .is_ok()
    }

    async fn release(&self) {
        let give_back = async {
            let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else {
                return;
            };
            let Some(spec) = &mut lease.spec else { return };
            if spec.holder_identity.as_deref() != Some(&self.me) {
                return;
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            // Whoever comes next waits for the duration otherwise; that is all that is lost.
            let _ = self.api.replace(&self.name, &PostParams::default(), &lease).await;
        };
        let _ = rt::within(REQUEST, give_back).await;
    }
}

#[cfg(test)]
#[path = "leader_tests.rs"]
mod tests;
