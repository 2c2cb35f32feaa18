//! What the operator has seen and done. Nothing in here is secret, and nothing changes while nothing happens.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a deployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The generation of the spec that everything below speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One condition of each type; types and reasons are closed sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The schema and its migration.
    #[serde(default)]
    pub schema: SchemaStatus,
    /// Each role.
    #[serde(default)]
    pub roles: RolesStatus,
    /// Selector of the Worker pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_selector: Option<String>,
    /// The coordination mode that the Schedulers run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Who leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaders: Vec<Leader>,
    /// Work that waits or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
}

/// The schema and its migration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchemaStatus {
    /// Hash of what the migration is for: the image and the database. Also the value of the approving annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_hash: Option<String>,
    /// The last target whose migration succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_hash: Option<String>,
    /// Revision of the schema, as the migrator reported it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Revision that the image works on. Below `revision`: the image is older, and roles are rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_revision: Option<i64>,
    /// Newest payload version that the image can run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_payload_version: Option<i64>,
    /// The Job of the current target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Uid of the Job whose end was counted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_job_uid: Option<String>,
    /// Attempts at the current target that have ended.
    #[serde(default)]
    pub attempts: i32,
    /// When the last of them ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_time: Option<String>,
    /// How the last of them ended: `refused`, `misconfigured`, `unreachable` or `lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
    /// Value of the annotation `powercontext.io/retry-migration` that was followed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_token: Option<String>,
    /// What the migration will do or has done, from the migrator: one line a step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<String>,
}

/// Each role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolesStatus {
    /// The APIs.
    #[serde(default)]
    pub api: RoleStatus,
    /// The Schedulers.
    #[serde(default)]
    pub scheduler: RoleStatus,
    /// The Workers.
    #[serde(default)]
    pub worker: RoleStatus,
    /// Scheduler and Worker in one.
    #[serde(default)]
    pub background: RoleStatus,
}

/// One role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleStatus {
    /// Pods that there should be.
    #[serde(default)]
    pub desired: i32,
    /// Pods that there are.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready: i32,
    /// Pods of the newest template.
    #[serde(default)]
    pub updated: i32,
    /// The build that was rolled out completely last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// A lease and who holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// Name of the lease.
    pub lease: String,
    /// The pod that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its fence; each take-over has a higher one.
    pub fence: i64,
}

/// Work that waits or runs. Refreshed at most every 30 seconds, unless a condition changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Items by state.
    #[serde(default)]
    pub depth: BTreeMap<String, i64>,
    /// Age of the oldest queued item, in seconds, rounded to one digit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_age_seconds: Option<i64>,
}
