//! Whether an operator runs, as far as a person may see it.

use std::fmt;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;

use super::cluster::Cluster;

/// What the chart's Deployment of the operator is labelled with.
const SELECTOR: &str = "app.kubernetes.io/name=powercontext-operator,app.kubernetes.io/component=operator";
const FORBIDDEN: u16 = 403;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OperatorSeen {
    /// The person may not look.
    Hidden,
    /// There is none that the chart made.
    Nowhere,
    /// There is one.
    At {
        /// Namespace and name of its Deployment.
        place: String,
        /// Pods that are available, of so many that there should be.
        available: (i32, i32),
    },
}

impl fmt::Display for OperatorSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden => {
                f.write_str("you may not look for the operator (list deployments in all namespaces); ask who installed it whether it runs")
            }
            Self::Nowhere => f.write_str(
                "no operator was found in this cluster; install the chart (docs/guides/install.md), or start the one that you have",
            ),
            Self::At { place, available: (0, wanted) } => write!(
                f,
                "the operator is not running: Deployment {place} has 0 of {wanted} pods; look at its pods and their log"
            ),
            Self::At {
                place,
                available: (available, wanted),
            } => write!(
                f,
                "the operator runs ({place}, {available} of {wanted} pods); it may look after other namespaces, or its log says why not"
            ),
        }
    }
}

/// Looks for the operator. What cannot be seen is no failure.
pub(super) async fn look(cluster: &Cluster) -> OperatorSeen {
    let everywhere: Api<Deployment> = Api::all(cluster.client.clone());
    match everywhere.list(&ListParams::default().labels(SELECTOR)).await {
        Ok(list) => seen(&list.items),
        Err(kube::Error::Api(status)) if status.code != FORBIDDEN => OperatorSeen::Nowhere,
        Err(_) => OperatorSeen::Hidden,
    }
}

fn seen(deployments: &[Deployment]) -> OperatorSeen {
    let one = |deployment: &Deployment| {
        let meta = &deployment.metadata;
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas);
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        OperatorSeen::At {
            place: format!(
                "{}/{}",
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default()
            ),
            available: (available.unwrap_or_default(), wanted.unwrap_or(1)),
        }
    };
    // The one that runs says more than one that does not.
    let runs = |seen: &OperatorSeen| {
        matches!(
            seen,
            OperatorSeen::At {
                available: (1.., _),
                ..
            }
        )
    };
    let all: Vec<OperatorSeen> = deployments.iter().map(one).collect();
    let first = all.iter().find(|seen| runs(seen)).or(all.first());
    first.cloned().unwrap_or(OperatorSeen::Nowhere)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_runs_is_preferred_and_none_is_told() {
        let deployment = |name: &str, available: i32| -> Deployment {
            serde_json::from_value(json!({ "metadata": { "namespace": "system", "name": name },
                "spec": { "replicas": 2, "selector": {}, "template": {} }, "status": { "availableReplicas": available } }))
            .expect("a Deployment")
        };
        assert_eq!(seen(&[]), OperatorSeen::Nowhere);
        let down = seen(&[deployment("a", 0)]);
        assert!(
            down.to_string()
                .contains("not running: Deployment system/a has 0 of 2 pods"),
            "{down}"
        );
        let runs = seen(&[deployment("a", 0), deployment("b", 2)]);
        assert!(runs.to_string().contains("system/b, 2 of 2"), "{runs}");
    }
}
