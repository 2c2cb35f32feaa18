//! Settings that all roles share: database, authentication, model, Supervisor, limits, operations, migration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod::{PodOptions, Resources, SecretKeyRef};
use crate::rules;

/// The database. Its URL is a secret; each role may have a user of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::database()))]
pub struct DatabaseSpec {
    /// A name for this database, not secret. It is part of what a migration is for and can never be changed.
    #[serde(default = "default_identity")]
    #[schemars(length(min = 1, max = 128))]
    pub identity: String,
    /// Key of a Secret that holds `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, for every role without one of its own.
    pub url_secret_ref: SecretKeyRef,
    /// URLs of single roles, for least privilege.
    #[serde(default)]
    pub roles: DatabaseRoles,
}

fn default_identity() -> String {
    "default".to_owned()
}

/// Database URLs of single roles.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatabaseRoles {
    /// Of the migration, which alone changes tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrator: Option<SecretKeyRef>,
    /// Of the APIs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<SecretKeyRef>,
    /// Of the Schedulers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SecretKeyRef>,
    /// Of the Workers, and of background processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<SecretKeyRef>,
}

/// Who may call. Either a token, or openly nobody.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::auth()))]
pub struct AuthSpec {
    /// Key of a Secret that holds the bearer token of API and metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,
    /// True: whoever reaches the Service may call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unauthenticated: Option<bool>,
}

/// Who serves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    /// Any server of OpenAI's chat completions.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// Anthropic's messages.
    #[serde(rename = "anthropic")]
    Anthropic,
}

impl Provider {
    /// As the runtime's settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai-chat",
            Self::Anthropic => "anthropic",
        }
    }
}

/// Models and who may use them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceSpec {
    /// The model that generates.
    pub generation: GenerationSpec,
    /// Whether APIs get the model's key too, for generation inside a request. Left out: only Workers have it.
    #[serde(default)]
    pub api_access: bool,
}

/// The model that generates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GenerationSpec {
    /// Who serves it.
    pub provider: Provider,
    /// Its name at the provider.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s]+$"))]
    pub model: String,
    /// Address of the provider, up to and including the version. Left out: the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^\s@?#]+$"))]
    pub base_url: Option<String>,
    /// Key of a Secret that holds the provider's key. Left out: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret_ref: Option<SecretKeyRef>,
    /// Seconds for one answer. Left out: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i64>,
    /// Most requests for one answer, repairs included. Left out: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub max_requests: Option<i32>,
}

/// How leadership over the families is divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SupervisorMode {
    /// One Scheduler leads all families.
    #[default]
    Global,
    /// Families are spread over the Schedulers.
    Dedicated,
}

impl SupervisorMode {
    /// As the runtime's settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Dedicated => "dedicated",
        }
    }
}

/// What follows a failed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Retry {
    /// A budget of attempts, then it waits for an operator.
    Bounded,
    /// For ever, with growing gaps.
    Unbounded,
}

impl Retry {
    /// As the runtime's settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bounded => "bounded",
            Self::Unbounded => "unbounded",
        }
    }
}

/// Automatic admission.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupervisorSpec {
    /// How leadership is divided. A change takes all Schedulers down first.
    #[serde(default)]
    pub mode: SupervisorMode,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<FamilySpec>,
    /// Topic Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_memory: Option<FamilySpec>,
    /// Experience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experience: Option<FamilySpec>,
    /// Profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSpec>,
}

/// When and how a family runs by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FamilySpec {
    /// Seconds between two looks for pending scopes. Left out: it runs only when asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub schedule_seconds: Option<i64>,
    /// Most runs at once in the whole deployment. Left out: as many as Workers have room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_workers: Option<i32>,
    /// Seconds after which a run is stopped. Left out: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i64>,
    /// What follows a failed run. Left out: the family's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// When and how Profile runs by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::profile()))]
pub struct ProfileSpec {
    /// When it looks for pending scopes, as five fields of cron. Left out: never by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^\S+( +\S+){4}$"))]
    pub cron: Option<String>,
    /// Zone of the cron fields, an IANA name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_+/-]+$"))]
    pub timezone: Option<String>,
    /// Most runs at once in the whole deployment. Left out: as many as Workers have room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_workers: Option<i32>,
    /// Seconds after which a run is stopped. Left out: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i64>,
    /// What follows a failed run. Left out: the family's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// Requests that one principal may send, counted over all API replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitSpec {
    /// Requests in one window.
    #[serde(default = "rate_requests")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests: i32,
    /// Length of the window, in seconds.
    #[serde(default = "rate_window")]
    #[schemars(range(min = 1, max = 86_400))]
    pub window_seconds: i64,
}

const fn rate_requests() -> i32 {
    120
}
const fn rate_window() -> i64 {
    60
}

/// How long flushes wait and how long ended operations are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::operations()))]
pub struct OperationsSpec {
    /// Seconds that a flush waits for its end if the request does not say.
    #[serde(default = "default_wait")]
    #[schemars(range(min = 0, max = 30))]
    pub default_wait_seconds: i64,
    /// Most seconds that a request may ask for.
    #[serde(default = "maximum_wait")]
    #[schemars(range(min = 0, max = 30))]
    pub maximum_wait_seconds: i64,
    /// Days that ended operations are kept.
    #[serde(default = "retention")]
    #[schemars(range(min = 1, max = 3650))]
    pub retention_days: i32,
}

impl Default for OperationsSpec {
    fn default() -> Self {
        Self {
            default_wait_seconds: default_wait(),
            maximum_wait_seconds: maximum_wait(),
            retention_days: retention(),
        }
    }
}

const fn default_wait() -> i64 {
    8
}
const fn maximum_wait() -> i64 {
    30
}
const fn retention() -> i32 {
    30
}

/// Who decides that a migration may begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MigrationPolicy {
    /// The operator, as soon as the image needs one.
    #[default]
    Auto,
    /// A person, by the annotation `powercontext.io/approve-migration: <status.schema.targetHash>`.
    Supervised,
}

/// How the schema is migrated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::migration()))]
pub struct MigrationSpec {
    /// Who decides that it may begin.
    #[serde(default)]
    pub policy: MigrationPolicy,
    /// Attempts after the first, of a migration that could not reach the database or was evicted. A refused one has none.
    #[serde(default = "retries")]
    #[schemars(range(min = 0, max = 20))]
    pub retries: i32,
    /// Seconds before the second attempt; it doubles with each.
    #[serde(default = "backoff")]
    #[schemars(range(min = 1, max = 3600))]
    pub backoff_seconds: i64,
    /// Most seconds between two attempts.
    #[serde(default = "backoff_max")]
    #[schemars(range(min = 1, max = 86_400))]
    pub backoff_max_seconds: i64,
    /// What the Job asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// What its pod is given beside that.
    #[serde(default)]
    pub pod: PodOptions,
}

impl Default for MigrationSpec {
    fn default() -> Self {
        Self {
            policy: MigrationPolicy::default(),
            retries: retries(),
            backoff_seconds: backoff(),
            backoff_max_seconds: backoff_max(),
            resources: None,
            pod: PodOptions::default(),
        }
    }
}

const fn retries() -> i32 {
    5
}
const fn backoff() -> i64 {
    10
}
const fn backoff_max() -> i64 {
    600
}
