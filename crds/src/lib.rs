//! The `PowerContextDeployment` resource: types, rules at admission, conditions. No client, no controller.
//!
//! The operator, the generator of `crds/powercontextdeployments.yaml` and tests share these types. Everything that can be
//! known about a spec without looking at the cluster is a rule of the schema (`rules`), so the API server refuses it with
//! a sentence; there is no webhook. Rules use only what Kubernetes 1.30 evaluates.

pub mod conditions;
mod rules;
mod schema;
pub mod v1alpha1;

pub use schema::{crd, yaml};
