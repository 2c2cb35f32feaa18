//! The four kinds of process: how many, how large, and the settings that only they have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod::{PodOptions, Resources};
use crate::rules;

/// The processes that serve HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiSpec {
    /// How many. Left out: 2, or what `autoscaling.api` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// What each asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Seconds from the request to end until a pod is killed; requests in flight are finished meanwhile.
    #[serde(default = "api_grace")]
    #[schemars(range(min = 1, max = 3600))]
    pub termination_grace_period_seconds: i64,
    /// What its pods are given beside that.
    #[serde(default)]
    pub pod: PodOptions,
}

/// The processes of which one leads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::scheduler()))]
pub struct SchedulerSpec {
    /// How many; one leads, the others stand by.
    #[serde(default = "two")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// What each asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Length of the leader's lease, in seconds: the longest time without a leader after one was lost.
    #[serde(default = "scheduler_lease")]
    #[schemars(range(min = 3, max = 3600))]
    pub lease_seconds: i64,
    /// How often the lease is renewed, in seconds. Three times this is at most the lease.
    #[serde(default = "scheduler_renew")]
    #[schemars(range(min = 1, max = 1200))]
    pub renew_seconds: i64,
    /// Seconds from the request to end until a pod is killed.
    #[serde(default = "api_grace")]
    #[schemars(range(min = 1, max = 3600))]
    pub termination_grace_period_seconds: i64,
    /// What its pods are given beside that.
    #[serde(default)]
    pub pod: PodOptions,
}

/// Processes that run work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::worker()))]
pub struct WorkerSpec {
    /// How many.
    #[serde(default = "two")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// What each asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Most runs at once in each process.
    #[serde(default = "concurrency")]
    #[schemars(range(min = 1, max = 256))]
    pub concurrency: i32,
    /// How long, in seconds, a claimed item is kept from other Workers without a heartbeat.
    #[serde(default = "lease")]
    #[schemars(range(min = 3, max = 86_400))]
    pub lease_seconds: i64,
    /// How often, in seconds, leases are renewed. Three times this is less than the lease.
    #[serde(default = "heartbeat")]
    #[schemars(range(min = 1, max = 28_800))]
    pub heartbeat_seconds: i64,
    /// How long, in seconds, running items may go on after a request to end. Less than the lease.
    #[serde(default = "grace")]
    #[schemars(range(min = 0, max = 86_400))]
    pub shutdown_grace_seconds: i64,
    /// Seconds from the request to end until a pod is killed. More than grace and heartbeat together. Left out: both and
    /// 15 more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 172_800))]
    pub termination_grace_period_seconds: Option<i64>,
    /// What its pods are given beside that.
    #[serde(default)]
    pub pod: PodOptions,
}

impl WorkerSpec {
    /// The default of `background`: none.
    pub fn background() -> Self {
        Self {
            replicas: 0,
            ..Self::default()
        }
    }
}

impl Default for ApiSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            resources: None,
            termination_grace_period_seconds: api_grace(),
            pod: PodOptions::default(),
        }
    }
}

impl Default for SchedulerSpec {
    fn default() -> Self {
        Self {
            replicas: two(),
            resources: None,
            lease_seconds: scheduler_lease(),
            renew_seconds: scheduler_renew(),
            termination_grace_period_seconds: api_grace(),
            pod: PodOptions::default(),
        }
    }
}

impl Default for WorkerSpec {
    fn default() -> Self {
        Self {
            replicas: two(),
            resources: None,
            concurrency: concurrency(),
            lease_seconds: lease(),
            heartbeat_seconds: heartbeat(),
            shutdown_grace_seconds: grace(),
            termination_grace_period_seconds: None,
            pod: PodOptions::default(),
        }
    }
}

const fn two() -> i32 {
    2
}
const fn concurrency() -> i32 {
    4
}
const fn lease() -> i64 {
    120
}
const fn heartbeat() -> i64 {
    30
}
const fn grace() -> i64 {
    90
}
const fn scheduler_lease() -> i64 {
    30
}
const fn scheduler_renew() -> i64 {
    10
}
const fn api_grace() -> i64 {
    45
}
