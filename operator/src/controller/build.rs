//! From a [`ValidDeployment`] to every object it consists of. Pure, and it cannot fail: what could go wrong was refused
//! before.
//!
//! Each object carries the controller reference of its resource, so deleting the resource deletes everything, with no
//! finalizer and without the operator. Selectors name no version; pods meet the `restricted` standard.

mod around;
mod env;
mod job;
mod pod;
mod role;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;
use powercontext_crds::v1alpha1::PowerContextDeployment;

use super::validate::ValidDeployment;
pub use job::{MIGRATE, PLAN, SWITCH_MODE};
pub use pod::CONTAINER;
pub use role::replicas;

use crate::names::Role;
use crate::object::{Key, Object};

/// Port of the roles' HTTP server.
pub const HTTP_PORT: i32 = 8000;

/// Everything that a deployment consists of, as it should be.
#[derive(Debug, Clone)]
pub struct Objects {
    /// What stands around the roles, in the order in which it is applied.
    pub around: Vec<Object>,
    /// Objects that may exist from an earlier spec and should not any more.
    pub unwanted: Vec<Key>,
    /// The Deployment of each role.
    pub roles: BTreeMap<Role, Object>,
    /// The Job that migrates to the target.
    pub migrate: Object,
    /// The Job that tells what that migration would do; only where a person approves it.
    pub plan: Object,
    /// The Job that stores the spec's coordination mode.
    pub switch_mode: Object,
}

/// Builds everything.
pub fn build(deployment: &ValidDeployment) -> Objects {
    let (around, unwanted) = around::objects(deployment);
    let roles = Role::ALL
        .into_iter()
        .map(|role| (role, role::deployment(deployment, role)))
        .collect();
    Objects {
        around,
        unwanted,
        roles,
        migrate: job::migrate(deployment),
        plan: job::plan(deployment),
        switch_mode: job::switch_mode(deployment),
    }
}

/// Metadata of an object of the deployment.
fn meta(deployment: &ValidDeployment, name: String, component: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(deployment.namespace.clone()),
        labels: Some(deployment.base.labels(component, &deployment.name)),
        owner_references: Some(vec![OwnerReference {
            api_version: PowerContextDeployment::api_version(&()).into_owned(),
            kind: PowerContextDeployment::kind(&()).into_owned(),
            name: deployment.name.clone(),
            uid: deployment.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
#[path = "build/build_tests.rs"]
mod tests;
