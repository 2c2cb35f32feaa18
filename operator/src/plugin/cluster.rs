//! The cluster as the person who runs the plugin meets it: every request says what it needed, so that a refusal can be told.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use powercontext_crds::v1alpha1::{PowerContextDeployment, SecretKeyRef};
use secrecy::SecretString;
use serde_json::Value;

use super::args::Place;
use super::fault::{Asked, PluginError, innermost};
use crate::names::DEPLOYMENT;

/// The manager of what the plugin writes.
pub(super) const MANAGER: &str = "kubectl-powercontext";
/// The resource, as rights name it.
pub(super) const DEPLOYMENTS: &str = "powercontextdeployments";
/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A cluster and a namespace in it.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
    server: String,
}

impl Cluster {
    /// Finds the cluster; nothing is asked of it yet.
    pub(super) async fn connect(place: &Place) -> Result<Self, PluginError> {
        let options = KubeConfigOptions {
            context: place.context.clone(),
            ..KubeConfigOptions::default()
        };
        let unusable = |error: &(dyn std::error::Error + 'static)| PluginError::Config(innermost(error));
        let mut config = match (&place.kubeconfig, &place.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
                let config = Config::from_custom_kubeconfig(file, &options).await;
                config.map_err(|error| unusable(&error))?
            }
            (None, Some(_)) => {
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|error| unusable(&error))?
            }
            // In a pod it is the pod's own account.
            (None, None) => Config::infer().await.map_err(|error| unusable(&error))?,
        };
        config.connect_timeout = Some(CONNECT);
        let server = config.cluster_url.to_string();
        let namespace = place
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| unusable(&error))?;
        Ok(Self {
            client,
            namespace,
            server: server.trim_end_matches('/').to_owned(),
        })
    }

    /// What is asked, for a refusal.
    pub(super) fn asked(&self, verb: &'static str, resource: &'static str) -> Asked {
        Asked {
            verb,
            resource,
            namespace: self.namespace.clone(),
        }
    }

    /// Turns the client's error into what it means for what was asked.
    pub(super) fn failed(
        &self,
        verb: &'static str,
        resource: &'static str,
    ) -> impl Fn(kube::Error) -> PluginError + '_ {
        move |error| PluginError::of(&error, self.asked(verb, resource), &self.server)
    }

    /// The address of the API server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    fn deployments(&self) -> Api<PowerContextDeployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Pods of the namespace.
    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The deployment of that name, or the only one.
    pub(super) async fn find(&self, name: Option<&str>) -> Result<PowerContextDeployment, PluginError> {
        let Some(name) = name else {
            let mut all = self.all().await?;
            return match all.len() {
                0 => Err(PluginError::NoneAtAll(self.namespace.clone())),
                1 => Ok(all.remove(0)),
                _ => Err(PluginError::Which {
                    namespace: self.namespace.clone(),
                    there: names(&all),
                }),
            };
        };
        match self.find_opt(name).await? {
            Some(resource) => Ok(resource),
            None => Err(PluginError::NoDeployment {
                name: name.to_owned(),
                namespace: self.namespace.clone(),
                there: self.others().await?,
            }),
        }
    }

    /// The deployment of that name, if there is one.
    pub(super) async fn find_opt(&self, name: &str) -> Result<Option<PowerContextDeployment>, PluginError> {
        let found = self.deployments().get_opt(name).await;
        found.map_err(self.failed("get", DEPLOYMENTS))
    }

    /// Every deployment of the namespace, by name.
    pub(super) async fn all(&self) -> Result<Vec<PowerContextDeployment>, PluginError> {
        let list = self.deployments().list(&ListParams::default()).await;
        let mut items = list.map_err(self.failed("list", DEPLOYMENTS))?.items;
        items.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(items)
    }

    /// Names of the deployments; `None` where they may not be listed.
    async fn others(&self) -> Result<Option<Vec<String>>, PluginError> {
        match self.all().await {
            Ok(all) => Ok(Some(names(&all))),
            Err(PluginError::Forbidden(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a merge patch over a deployment.
    pub(super) async fn patch(&self, name: &str, patch: &Value) -> Result<PowerContextDeployment, PluginError> {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = self.deployments().patch(name, &params, &Patch::Merge(patch)).await;
        patched.map_err(self.failed("patch", DEPLOYMENTS))
    }

    /// Events about an object, the oldest first.
    pub(super) async fn events_of(&self, uid: &str) -> Result<Vec<Event>, PluginError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let list = events.list(&about).await;
        Ok(list.map_err(self.failed("list", "events"))?.items)
    }

    /// Pods of a component of a deployment, by name.
    pub(super) async fn pods_of(&self, deployment: &str, component: &str) -> Result<Vec<Pod>, PluginError> {
        let selector = format!("{DEPLOYMENT}={deployment},app.kubernetes.io/component={component}");
        let list = self.pods().list(&ListParams::default().labels(&selector)).await;
        let mut pods = list.map_err(self.failed("list", "pods"))?.items;
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(pods)
    }

    /// A key of a secret.
    pub(super) async fn secret(&self, named: &SecretKeyRef) -> Result<SecretString, PluginError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get_opt(&named.name)
            .await
            .map_err(self.failed("get", "secrets"))?;
        let missing = |what: &str| PluginError::Missing(format!("{what} in namespace {}", self.namespace));
        let secret = secret.ok_or_else(|| missing(&format!("there is no secret {}", named.name)))?;
        let data: BTreeMap<String, ByteString> = secret.data.unwrap_or_default();
        let value = data
            .get(&named.key)
            .and_then(|value| String::from_utf8(value.0.clone()).ok());
        let value = value.ok_or_else(|| missing(&format!("secret {} has no text at key {}", named.name, named.key)))?;
        Ok(SecretString::from(value.trim()))
    }
}

fn names(all: &[PowerContextDeployment]) -> Vec<String> {
    all.iter().filter_map(|one| one.metadata.name.clone()).collect()
}
