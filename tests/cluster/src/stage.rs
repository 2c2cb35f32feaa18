//! What one test plays on: a namespace, its secrets, its kubelet, and what the cluster says of the deployment in it.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};
use powercontext_operator::names::{Base, Role};
use powercontext_operator::rt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::control_plane::{ControlPlane, control_plane};
use crate::kubectl::Kubectl;
use crate::kubelet::Kubelet;
use crate::operator::{Operator, Setup};
use crate::roles::Roles;
use crate::wait::until;

/// Longest wait for what takes the operator a few passes; long enough for a machine that does much else.
pub const SOON: Duration = Duration::from_secs(90);
/// The operator's service account.
pub const ACCOUNT: &str = "powercontext-operator";
/// Name of the resource, unless a test says otherwise.
pub const NAME: &str = "pc";

/// The secrets of a deployment: name, key, value. No value may ever be seen outside its secret.
pub const SECRETS: [(&str, &str, &str); 3] = [
    (
        "pc-database",
        "url",
        "mysql://canary-user:canary-7c21-database@db.example:2881/pc",
    ),
    ("pc-auth", "token", "canary-7c21-token"),
    ("pc-model", "key", "canary-7c21-model"),
];

/// Everything of one test.
pub struct Stage {
    /// The control plane.
    pub plane: &'static ControlPlane,
    /// An administrator's client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// What becomes of pods.
    pub kubelet: Kubelet,
    /// What the running roles say.
    pub roles: Roles,
    /// What the operator asked of the API server.
    pub audit: Audit,
    folder: tempfile::TempDir,
}

/// The smallest spec, with one pod of each role.
pub fn spec() -> Value {
    json!({
        "image": "registry.example/powercontext:0.1.0",
        "database": { "urlSecretRef": { "name": "pc-database", "key": "url" } },
        "auth": { "tokenSecretRef": { "name": "pc-auth", "key": "token" } },
        "inference": { "generation": { "provider": "openai-chat", "model": "gpt-x",
            "apiKeySecretRef": { "name": "pc-model", "key": "key" } } },
        "api": { "replicas": 1 },
        "scheduler": { "replicas": 1 },
        "worker": { "replicas": 1 },
    })
}

/// The smallest spec with other values in some places. A null takes a field away.
pub fn spec_with(changes: &Value) -> Value {
    let mut spec = spec();
    merge(&mut spec, changes);
    spec
}

/// Writes one object over another, member by member.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A resource of that name.
pub fn resource(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "powercontext.io/v1alpha1",
        "kind": "PowerContextDeployment",
        "metadata": { "name": name },
        "spec": spec,
    })
}

impl Stage {
    /// A namespace of that beginning with `restricted` enforced, the secrets in it, and nothing else.
    ///
    /// # Errors
    /// When there is no control plane.
    pub async fn new(beginning: &str) -> anyhow::Result<Self> {
        let stage = Self::without_secrets(beginning).await?;
        stage.make_secrets().await?;
        Ok(stage)
    }

    /// The same without the secrets.
    ///
    /// # Errors
    /// When there is no control plane.
    pub async fn without_secrets(beginning: &str) -> anyhow::Result<Self> {
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
        let namespace = namespace.metadata.name.context("it has a name")?;
        let roles = Roles::default();
        roles.told().token = Some(SECRETS[1].2.to_owned());
        let user = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
        let stage = Self {
            kubelet: Kubelet::start(client.clone(), &namespace, roles.clone()),
            audit: Audit::new(plane.audit_log(), user),
            folder: tempfile::tempdir()?,
            plane,
            client,
            namespace,
            roles,
        };
        stage.make_account().await?;
        Ok(stage)
    }

    /// The secrets of a deployment.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn make_secrets(&self) -> anyhow::Result<()> {
        for (name, key, value) in SECRETS {
            self.set_secret(name, key, value).await?;
        }
        Ok(())
    }

    /// Sets one key of a secret to a value, and takes all others away.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn set_secret(&self, name: &str, key: &str, value: &str) -> anyhow::Result<()> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some([(key.to_owned(), ByteString(value.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        let params = PatchParams::apply("tests").force();
        self.api::<Secret>().patch(name, &params, &Patch::Apply(secret)).await?;
        Ok(())
    }

    async fn make_account(&self) -> anyhow::Result<()> {
        let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": ACCOUNT } }))?;
        self.api().create(&PostParams::default(), &account).await?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": { "name": ACCOUNT },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace }],
        }))?;
        self.api().create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    /// How operators of this namespace are started: without a lease, unless the test wants one.
    ///
    /// # Errors
    /// When the operator's account cannot be had.
    pub async fn setup(&self, with_lease: bool) -> anyhow::Result<Setup> {
        let setup = Setup {
            kubeconfig: self
                .plane
                .kubeconfig_of(&self.client, &self.namespace, ACCOUNT, self.folder.path())
                .await?,
            folder: self.folder.path().to_owned(),
            namespace: self.namespace.clone(),
            program: crate::operator::program()?,
            arguments: vec!["--namespace".to_owned(), self.namespace.clone()],
        };
        Ok(if with_lease {
            setup
        } else {
            setup.with("--no-leader-election")
        })
    }

    /// Starts the operator of this namespace.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn operator(&self) -> anyhow::Result<Operator> {
        self.setup(false).await?.start("operator")
    }

    /// Objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// `kubectl` of an administrator in the namespace.
    pub fn kubectl(&self) -> Kubectl {
        self.plane.kubectl().within(&self.namespace)
    }

    /// Makes or changes the deployment.
    ///
    /// # Errors
    /// When admission refuses it.
    pub async fn apply(&self, spec: &Value) -> anyhow::Result<PowerContextDeployment> {
        self.apply_named(NAME, spec).await
    }

    /// Makes or changes a deployment of that name.
    ///
    /// # Errors
    /// When admission refuses it.
    pub async fn apply_named(&self, name: &str, spec: &Value) -> anyhow::Result<PowerContextDeployment> {
        let params = PatchParams::apply("tests").force();
        let resource = resource(name, spec);
        Ok(self.api().patch(name, &params, &Patch::Apply(resource)).await?)
    }

    /// The deployment.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self) -> anyhow::Result<PowerContextDeployment> {
        Ok(self.api().get(NAME).await?)
    }

    /// The deployment's status.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn status(&self) -> anyhow::Result<Status> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// A condition of the deployment.
    ///
    /// # Errors
    /// When there is no deployment.
    pub async fn condition(&self, kind: ConditionType) -> anyhow::Result<Option<Condition>> {
        let conditions = self.status().await?.conditions;
        Ok(conditions.into_iter().find(|one| one.type_ == kind.as_str()))
    }

    /// Objects of a kind that belong to deployments of the namespace.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn ours<K>(&self) -> anyhow::Result<Vec<K>>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let ours = ListParams::default().labels("app.kubernetes.io/part-of=powercontext");
        Ok(self.api::<K>().list(&ours).await?.items)
    }

    /// The Jobs of a component, by name.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn jobs(&self, component: &str) -> anyhow::Result<Vec<Job>> {
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
        Ok(self.api::<Job>().list(&ours).await?.items)
    }

    /// The Deployment of a role, if there is one.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn deployment(&self, role: Role) -> anyhow::Result<Option<Deployment>> {
        Ok(self.api().get_opt(&Base::of(NAME).role(role)).await?)
    }

    /// The pods of a component.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn pods(&self, component: &str) -> anyhow::Result<Vec<Pod>> {
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
        Ok(self.api::<Pod>().list(&ours).await?.items)
    }

    /// Waits until a condition holds for this reason, and is about the newest spec.
    ///
    /// # Errors
    /// When it does not in time, with what is there instead.
    pub async fn until_condition(
        &self,
        kind: ConditionType,
        holds: bool,
        reason: Reason,
        within: Duration,
    ) -> anyhow::Result<Condition> {
        let wanted = if holds { "True" } else { "False" };
        let what = format!("{kind} is {wanted} for {reason}");
        let found = until(&what, within, async || {
            let generation = self.get().await?.metadata.generation;
            let one = self.condition(kind).await?;
            Ok(one.filter(|one| {
                (one.status.as_str(), one.reason.as_str()) == (wanted, reason.as_str())
                    && one.observed_generation == generation
            }))
        });
        self.explained(found.await).await
    }

    /// Waits until the newest spec is completely rolled out.
    ///
    /// # Errors
    /// When it is not in time, with what is there instead.
    pub async fn until_ready(&self) -> anyhow::Result<Condition> {
        self.until_condition(ConditionType::Ready, true, Reason::Complete, SOON)
            .await
    }

    /// Waits until the operator has written nothing for a while: events follow the status that they are about.
    ///
    /// # Errors
    /// When it never comes to rest.
    pub async fn at_rest(&self) -> anyhow::Result<()> {
        const QUIET: Duration = Duration::from_secs(2);
        let mut count = self.audit.writes()?.len();
        let mut since = rt::now();
        let rest = until("the operator is at rest", SOON, async || {
            let now = self.audit.writes()?.len();
            if now != count {
                (count, since) = (now, rt::now());
            }
            Ok((since.elapsed() > QUIET).then_some(()))
        });
        self.explained(rest.await).await
    }

    /// Adds to a failure what the cluster and the operators say.
    ///
    /// # Errors
    /// The failure.
    pub async fn explained<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        let Err(error) = result else { return result };
        let status = serde_json::to_string_pretty(&self.status().await.unwrap_or_default())?;
        let pods = self
            .kubectl()
            .run(&["get", "pods,jobs,deployments"])
            .unwrap_or_default();
        let mut logs = String::new();
        for entry in std::fs::read_dir(self.folder.path())?.flatten() {
            if entry.path().extension().is_some_and(|end| end == "log") {
                logs.push_str(&std::fs::read_to_string(entry.path())?);
            }
        }
        // Each line begins with its time.
        let mut lines: Vec<&str> = logs.lines().collect();
        lines.sort_unstable();
        let end = lines.len().saturating_sub(40);
        let logs = lines[end..].join("\n");
        Err(error.context(format!("{status}\n{pods}\n{logs}")))
    }
}
