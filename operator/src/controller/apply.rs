//! The actions of a plan, in their order. The first that fails ends the pass.
//!
//! Objects are applied server-side under the operator's own name, so fields of others stay theirs. A Job can never be
//! changed; it is created, and one that is there already is left alone.

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::observe::api;
use crate::error::{Fault, ReconcileError, Step};
use crate::names::{DELETION_COST, FIELD_MANAGER};
use crate::object::{Key, Kind, Object};
use crate::plan::{Action, Observed};

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;

/// Does one action.
///
/// # Errors
/// What the API server answered, about which object.
pub async fn act(client: &Client, namespace: &str, observed: &Observed, action: &Action) -> Result<(), ReconcileError> {
    match action {
        Action::Apply(object) if object.key.kind == Kind::Job => create(client, namespace, object).await,
        Action::Apply(object) => apply(client, namespace, object).await,
        Action::Delete(key) => {
            let uid = observed
                .objects
                .get(key)
                .and_then(|live| live["metadata"]["uid"].as_str());
            delete(client, namespace, key, uid).await
        }
        Action::DeletionCost { pod, cost } => deletion_cost(client, namespace, pod, *cost).await,
    }
}

fn failed(key: &Key) -> impl Fn(&kube::Error) -> ReconcileError + '_ {
    move |error| ReconcileError {
        step: Step::Apply,
        fault: Fault::of(error).about(key),
    }
}

async fn apply(client: &Client, namespace: &str, object: &Object) -> Result<(), ReconcileError> {
    let api = api(client, namespace, object.key.kind);
    let patch = async |params: PatchParams, patch: Patch<&Value>| {
        let answer = api.patch(&object.key.name, &params, &patch).await;
        answer.map_err(|error| failed(&object.key)(&error))
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let live = patch(params, Patch::Apply(&object.manifest)).await?;
    // What somebody else has put into a list is theirs, and applying leaves it there; written over, the list is ours.
    if serde_json::to_value(live).is_ok_and(|live| !object.is_in(&live)) {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        patch(params, Patch::Merge(&object.manifest)).await?;
    }
    Ok(())
}

async fn create(client: &Client, namespace: &str, object: &Object) -> Result<(), ReconcileError> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let job: DynamicObject = serde_json::from_value(object.manifest.clone()).map_err(|_| ReconcileError {
        step: Step::Apply,
        fault: Fault {
            object: Some(object.key.clone()),
            code: 0,
            reason: "NoObject".to_owned(),
            fields: Vec::new(),
        },
    })?;
    match api(client, namespace, Kind::Job).create(&params, &job).await {
        Ok(_) => Ok(()),
        // The cache has not seen it yet, or it is somebody else's; the next pass knows which.
        Err(kube::Error::Api(status)) if status.code == CONFLICT => Ok(()),
        Err(error) => Err(failed(&object.key)(&error)),
    }
}

/// Deletes the very object that was observed, and what it owns in the background.
async fn delete(client: &Client, namespace: &str, key: &Key, uid: Option<&str>) -> Result<(), ReconcileError> {
    let params = DeleteParams {
        preconditions: uid.map(|uid| Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match api(client, namespace, key.kind).delete(&key.name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [NOT_FOUND, CONFLICT].contains(&status.code) => Ok(()),
        Err(error) => Err(failed(key)(&error)),
    }
}

async fn deletion_cost(client: &Client, namespace: &str, pod: &str, cost: i32) -> Result<(), ReconcileError> {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
    let patch: Value = json!({ "metadata": { "annotations": { DELETION_COST: cost.to_string() } } });
    match pods.patch(pod, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
        Err(error) => Err(ReconcileError {
            step: Step::Apply,
            fault: Fault::of(&error),
        }),
    }
}
