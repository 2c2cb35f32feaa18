//! Where a release is installed: a namespace with `restricted` enforced and a kubelet that plays its pods.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use powercontext_chart_tests::{chart, helm, objects, of_kind, printed};
use powercontext_cluster_tests::audit::Audit;
use powercontext_cluster_tests::control_plane::{ControlPlane, control_plane};
use powercontext_cluster_tests::kubectl::Kubectl;
use powercontext_cluster_tests::kubelet::{Fate, Kubelet};
use powercontext_cluster_tests::operator::{Operator, Setup, program};
use powercontext_cluster_tests::roles::{Roles, component, role};
use powercontext_cluster_tests::stage::SECRETS;
use powercontext_cluster_tests::wait::until;
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Longest wait for something that takes a few passes of a few controllers.
pub(crate) const SOON: Duration = Duration::from_mins(2);
/// Name of the definition.
pub(crate) const DEFINITION: &str = "powercontextdeployments.powercontext.io";

static CLUSTER: RwLock<()> = RwLock::const_new(());

/// Held by a test that needs the definition to be there, and no operator but its own.
pub(crate) async fn beside() -> RwLockReadGuard<'static, ()> {
    CLUSTER.read().await
}

/// Held by a test that takes the definition away, or runs an operator that looks after every namespace.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    CLUSTER.write().await
}

/// A namespace and what is in it. Its name is also the release's.
pub(crate) struct Site {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) kubelet: Kubelet,
    pub(crate) roles: Roles,
    pub(crate) folder: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn new(beginning: &str) -> anyhow::Result<Self> {
        let plane = control_plane()?;
        let client = plane.client().await?;
        plane.ensure_node(&client).await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {
                "generateName": format!("{beginning}-"),
                "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
            }
        }))?;
        let namespace = namespaces.create(&PostParams::default(), &namespace).await?;
        let name = namespace.metadata.name.context("it has a name")?;
        let roles = Roles::default();
        roles.told().token = Some(SECRETS[1].2.to_owned());
        let kubelet = Kubelet::start(client.clone(), &name, roles.clone());
        kubelet.script(|pod| fate(pod, Fate::migrated()));
        Ok(Self {
            kubelet,
            roles,
            folder: tempfile::tempdir()?,
            plane,
            client,
            name,
        })
    }

    /// Runs Helm on this cluster and this namespace.
    pub(crate) fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let mut all = vec!["--kubeconfig", &kubeconfig, "--namespace", &self.name];
        all.extend(arguments);
        printed(&format!("helm {arguments:?}"), helm(&all)?)
    }

    /// Installs or upgrades the release from a chart, waits for its pods, and tells the notes.
    pub(crate) fn install(&self, chart: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut all = vec!["upgrade", "--install", &self.name, chart, "--wait", "--timeout", "3m"];
        all.extend(arguments);
        self.helm(&all)
    }

    /// The same from the chart of this repository.
    pub(crate) fn install_ours(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.install(&chart().display().to_string(), arguments)
    }

    /// Name of what the chart installs.
    pub(crate) fn fullname(&self) -> String {
        format!("{}-powercontext-operator", self.name)
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        self.plane.kubectl().within(&self.name)
    }

    /// An object as JSON; nothing where there is none.
    pub(crate) fn get(&self, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let found = self
            .kubectl()
            .run(&["get", kind, name, "--ignore-not-found", "--output", "json"])?;
        Ok((!found.trim().is_empty())
            .then(|| serde_json::from_str(&found))
            .transpose()?)
    }

    pub(crate) fn definition(&self) -> anyhow::Result<Option<Value>> {
        self.get("crd", DEFINITION)
    }

    /// The secrets of a deployment.
    pub(crate) async fn make_secrets(&self) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.name);
        for (name, key, value) in SECRETS {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { key: value } });
            secrets
                .patch(name, &PatchParams::apply("tests"), &Patch::Apply(secret))
                .await?;
        }
        Ok(())
    }

    /// Makes or changes the deployment `pc`.
    pub(crate) fn apply(&self, spec: &Value) -> anyhow::Result<()> {
        let resource = powercontext_cluster_tests::stage::resource("pc", spec).to_string();
        self.kubectl()
            .feed(&["apply", "--server-side", "--filename", "-"], &resource)?;
        Ok(())
    }

    /// Waits until a condition of the deployment is so, for this reason and the newest spec.
    pub(crate) async fn until(&self, kind: &str, status: &str, reason: &str) -> anyhow::Result<()> {
        let wanted = format!("{kind}={status}/{reason}");
        let found = until(&wanted, SOON, async || {
            let Some(found) = self.get("pcd", "pc")? else {
                return Ok(None);
            };
            let generation = &found["metadata"]["generation"];
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_so = conditions.iter().any(|one| {
                one["type"] == kind
                    && one["status"] == status
                    && one["reason"] == reason
                    && one["observedGeneration"] == *generation
            });
            Ok(is_so.then_some(()))
        });
        let result = found.await;
        result.with_context(|| {
            self.kubectl()
                .run(&["get", "pcd", "pc", "--output", "yaml"])
                .unwrap_or_default()
        })
    }

    /// What the operator's account asked from now on.
    pub(crate) fn audit(&self) -> Audit {
        let user = format!("system:serviceaccount:{}:{}", self.name, self.fullname());
        Audit::new(self.plane.audit_log(), user)
    }

    /// Starts the operator with the arguments of the installed Deployment, under its account. Only the port is another.
    pub(crate) async fn operator(&self, name: &str) -> anyhow::Result<Operator> {
        let deployment = self.get("deployment", &self.fullname())?.context("it is installed")?;
        let arguments = arguments(&deployment["spec"]["template"]["spec"]);
        let arguments = arguments
            .into_iter()
            .filter(|argument| !argument.starts_with("--port="))
            .collect();
        let kubeconfig = self.account().await?;
        let operator = Setup::new(kubeconfig, self.folder.path().to_owned(), &self.name, arguments)?.start(name)?;
        Ok(operator)
    }

    async fn account(&self) -> anyhow::Result<std::path::PathBuf> {
        let folder = self.folder.path();
        self.plane
            .kubeconfig_of(&self.client, &self.name, &self.fullname(), folder)
            .await
    }

    /// Runs what the pod of `helm test` runs, against the operator that listens on that port.
    pub(crate) async fn check(&self, port: u16) -> anyhow::Result<String> {
        let hooks = objects(&self.helm(&["get", "hooks", &self.name])?)?;
        let pod = of_kind(&hooks, "Pod").first().copied().context("a test")?.clone();
        let arguments = arguments(&pod["spec"]).into_iter().map(|argument| {
            if argument.starts_with("--url=") {
                format!("--url=http://127.0.0.1:{port}")
            } else {
                argument
            }
        });
        let output = Command::new(program()?)
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", self.account().await?)
            .env("POD_NAMESPACE", &self.name)
            .output()?;
        printed("check", output)
    }
}

/// The operator's replicas and the roles run; everything else is a Job or the chart's test, and fares as given.
pub(crate) fn fate(pod: &Pod, others: Fate) -> Fate {
    if component(pod) == "operator" || role(pod).is_some() {
        Fate::Running { ready: true }
    } else {
        others
    }
}

/// The arguments of the first container.
fn arguments(pod: &Value) -> Vec<String> {
    let arguments = pod["containers"][0]["args"].as_array().into_iter().flatten();
    arguments
        .filter_map(|argument| argument.as_str().map(str::to_owned))
        .collect()
}
