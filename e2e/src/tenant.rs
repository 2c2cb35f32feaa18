//! One namespace with a deployment: its secrets, its schema, its model, and what the cluster says of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use powercontext::rt;
use powercontext_cluster_tests::kubectl::Kubectl;
use powercontext_cluster_tests::stage::merge;
use powercontext_cluster_tests::wait::until;
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::provider::Provider;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SOON};

/// Name of the deployment in the sample.
const NAME: &str = "powercontext";
/// Port at which the roles listen.
const HTTP_PORT: u16 = 8000;
/// The pods' way to the database, whatever port it has.
const DATABASE_PORT: u16 = 2881;

/// A namespace and what is outside the cluster for it.
pub(crate) struct Tenant {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) namespace: String,
    pub(crate) database: Database,
    pub(crate) provider: Provider,
    pub(crate) token: String,
    /// Name of the deployment.
    pub(crate) name: String,
}

/// A Service without selector, in front of something that listens on this machine.
pub(crate) fn outside(host: Ipv4Addr, name: &str, port: u16, listens: u16) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
          "spec": { "ports": [{ "name": "tcp", "port": port, "targetPort": listens }] } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
          "metadata": { "name": format!("{name}-outside"), "labels": { "kubernetes.io/service-name": name } },
          "addressType": "IPv4", "ports": [{ "name": "tcp", "port": listens, "protocol": "TCP" }],
          "endpoints": [{ "addresses": [host.to_string()] }] },
    ]})
}

/// The sample of the documents as it is on this cluster, with these changes to its spec.
///
/// # Errors
/// When the sample cannot be read.
pub(crate) fn sample(cluster: &Cluster, changes: &Value) -> anyhow::Result<Value> {
    let text = powercontext_chart_tests::read("docs/examples/deployment.yaml")?;
    let mut sample: Value = serde_yaml::from_str(&text)?;
    let spec = sample.get_mut("spec").context("the sample has a spec")?;
    let here = json!({
        "image": cluster.image,
        "inference": { "generation": { "baseUrl": "http://model/v1", "timeoutSeconds": 240 } },
        "api": small(),
        "scheduler": small(),
        "worker": small(),
        "supervisor": { "memory": { "scheduleSeconds": 2 } },
    });
    // Leases as short as may be: what waits for one to run out takes seconds.
    let quick = json!({
        "scheduler": { "leaseSeconds": 6, "renewSeconds": 2 },
        "worker": { "leaseSeconds": 15, "heartbeatSeconds": 4, "shutdownGraceSeconds": 9 },
    });
    for part in [&here, &quick, changes] {
        merge(spec, part);
    }
    Ok(sample)
}

/// Switches that only a test rig needs: the kernel calls itself by another name, and the model speaks plain HTTP.
fn rig() -> Value {
    let on = |name: &str| json!({ "name": format!("POWERCONTEXT_SERVER_{name}"), "value": "true" });
    json!([on("COORDINATION_ALLOW_SEEKDB_SERVER"), on("ALLOW_INSECURE_HTTP")])
}

/// A role that asks for little, so that many pods have room on a small node.
fn small() -> Value {
    json!({
        "pod": { "extraEnv": rig() },
        "resources": { "requests": { "cpu": "10m", "memory": "64Mi" } },
    })
}

impl Tenant {
    /// A namespace with `restricted` enforced, its secrets, its way to a schema of its own and to a model of its own.
    ///
    /// # Errors
    /// When the cluster or the kernel does not answer.
    pub(crate) async fn new(cluster: &Arc<Cluster>, beginning: &str) -> anyhow::Result<Self> {
        let tenant = Self {
            cluster: Arc::clone(cluster),
            namespace: format!("{beginning}-{}", &rt::hex_id()[..6]),
            // Another scenario's would be migrated, by the next release perhaps.
            database: Database::oceanbase_unused().await?,
            provider: Provider::start_on(cluster.host).await?,
            token: rt::hex_id(),
            name: NAME.to_owned(),
        };
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": tenant.namespace,
            "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
        }});
        cluster
            .kubectl()
            .feed(&["apply", "--filename", "-"], &namespace.to_string())?;
        let model = tenant.provider.address().port();
        tenant.feed(&outside(cluster.host, "model", 80, model))?;
        tenant.reach_database_at(tenant.database_port()?)?;
        tenant.set_secret("powercontext-database", "url", &tenant.url_for_pods()?)?;
        tenant.set_secret("powercontext-auth", "token", &tenant.token)?;
        tenant.set_secret("powercontext-model", "key", "unused")?;
        Ok(tenant)
    }

    /// Port and schema in the URL by which this program reaches the kernel.
    fn database_parts(&self) -> anyhow::Result<(u16, String)> {
        let (_, rest) = self.database.url().rsplit_once(':').context("a URL with a port")?;
        let (port, schema) = rest.split_once('/').context("a URL with a schema")?;
        Ok((port.parse()?, schema.split('?').next().unwrap_or_default().to_owned()))
    }

    /// Port at which the kernel listens.
    ///
    /// # Errors
    /// When its URL names none.
    pub(crate) fn database_port(&self) -> anyhow::Result<u16> {
        Ok(self.database_parts()?.0)
    }

    /// The URL of the schema as pods say it.
    ///
    /// # Errors
    /// When the kernel's URL cannot be read.
    pub(crate) fn url_for_pods(&self) -> anyhow::Result<String> {
        let schema = self.database_parts()?.1;
        Ok(format!("mysql://root@oceanbase:{DATABASE_PORT}/{schema}"))
    }

    /// Lets pods find the database behind this port of this machine.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) fn reach_database_at(&self, port: u16) -> anyhow::Result<()> {
        self.feed(&outside(self.cluster.host, "oceanbase", DATABASE_PORT, port))
    }

    /// Sets one key of a secret.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) fn set_secret(&self, name: &str, key: &str, value: &str) -> anyhow::Result<()> {
        self.feed(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { key: value } }))
    }

    /// Makes or changes objects of the namespace.
    ///
    /// # Errors
    /// When the API server refuses them.
    pub(crate) fn feed(&self, objects: &Value) -> anyhow::Result<()> {
        let arguments = ["apply", "--server-side", "--force-conflicts", "--filename", "-"];
        self.kubectl().feed(&arguments, &objects.to_string()).map(drop)
    }

    /// `kubectl` of an administrator in the namespace.
    pub(crate) fn kubectl(&self) -> Kubectl {
        self.cluster.kubectl().within(&self.namespace)
    }

    /// Makes the deployment of the sample with these changes.
    ///
    /// # Errors
    /// When admission refuses it.
    pub(crate) fn apply(&self, changes: &Value) -> anyhow::Result<()> {
        let mut sample = sample(&self.cluster, changes)?;
        sample["metadata"]["name"] = self.name.clone().into();
        self.feed(&sample)
    }

    /// Changes the spec as a person would.
    ///
    /// # Errors
    /// When admission refuses it.
    pub(crate) fn patch(&self, spec: &Value) -> anyhow::Result<()> {
        let patch = json!({ "spec": spec }).to_string();
        let arguments = ["patch", "pcd", &self.name, "--type", "merge", "--patch", &patch];
        self.kubectl().run(&arguments).map(drop)
    }

    /// Objects of the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// The deployment's status.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) async fn status(&self) -> anyhow::Result<Status> {
        let deployment: PowerContextDeployment = self.api().get(&self.name).await?;
        Ok(deployment.status.unwrap_or_default())
    }

    /// Waits until a condition is so, for this reason and the newest spec.
    ///
    /// # Errors
    /// When it is not in time, with what is there instead.
    pub(crate) async fn until(
        &self,
        kind: &str,
        status: &str,
        reason: &str,
        within: Duration,
    ) -> anyhow::Result<Condition> {
        let what = format!("{}: {kind}={status} for {reason}", self.namespace);
        let found = until(&what, within, async || {
            let deployment: PowerContextDeployment = self.api().get(&self.name).await?;
            let generation = deployment.metadata.generation;
            let conditions = deployment.status.unwrap_or_default().conditions;
            Ok(conditions.into_iter().find(|one| {
                (one.type_.as_str(), one.status.as_str(), one.reason.as_str()) == (kind, status, reason)
                    && one.observed_generation == generation
            }))
        });
        self.explained(found.await)
    }

    /// Waits until the newest spec is completely rolled out.
    ///
    /// # Errors
    /// When it is not in time, with what is there instead.
    pub(crate) async fn ready(&self) -> anyhow::Result<()> {
        self.until("Ready", "True", "Complete", SOON).await.map(drop)
    }

    /// Waits until the status is as wanted.
    ///
    /// # Errors
    /// When it is not in time, with what is there instead.
    pub(crate) async fn until_status(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> anyhow::Result<Status> {
        let found = until(what, SOON, async || Ok(Some(self.status().await?).filter(&wanted)));
        self.explained(found.await)
    }

    /// The pods of a role that are not on their way out.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn pods(&self, role: &str) -> anyhow::Result<Vec<Pod>> {
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/component={role}"));
        let mut pods = self.api::<Pod>().list(&ours).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits until the pods of a role that are ending have gone: an API answers for a while after it was told to end.
    ///
    /// # Errors
    /// When one stays, or the API server does not answer.
    pub(crate) async fn none_ends(&self, role: &str) -> anyhow::Result<()> {
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/component={role}"));
        until(&format!("no {role} pod is ending"), SOON, async || {
            let pods = self.api::<Pod>().list(&ours).await?.items;
            let ends = pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some());
            Ok((!ends).then_some(()))
        })
        .await
    }

    /// How often containers were started again, by pod.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn restarts(&self) -> anyhow::Result<BTreeMap<String, i32>> {
        let pods = self.api::<Pod>().list(&ListParams::default()).await?.items;
        let count = |pod: &Pod| {
            let statuses = pod
                .status
                .as_ref()
                .and_then(|status| status.container_statuses.as_ref());
            statuses.into_iter().flatten().map(|one| one.restart_count).sum()
        };
        Ok(pods.iter().map(|pod| (pod.name_any(), count(pod))).collect())
    }

    /// Where a pod listens.
    ///
    /// # Errors
    /// When it has no address yet.
    pub(crate) fn address(pod: &Pod) -> anyhow::Result<SocketAddr> {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
        let address: IpAddr = address.context("the pod has no address")?.parse()?;
        Ok((address, HTTP_PORT).into())
    }

    /// Where the APIs' Service listens; nodes learn of its pods a moment after they are ready.
    ///
    /// # Errors
    /// When there is none, or it leads nowhere.
    pub(crate) async fn service(&self) -> anyhow::Result<SocketAddr> {
        let service: Service = self.api().get(&format!("{}-api", self.name)).await?;
        let spec = service.spec.context("a Service has a spec")?;
        let address: IpAddr = spec.cluster_ip.context("it has an address")?.parse()?;
        let port = spec.ports.unwrap_or_default().first().context("it has a port")?.port;
        let address = SocketAddr::from((address, u16::try_from(port)?));
        // A connection alone says nothing: what leaves the node unknown may be taken by whoever is on its way, and be kept.
        let client = Client::new(address)?.reconnecting(&self.token)?;
        until("the Service leads to an API", SOON, async || {
            client.get("/health/live").await?.expect(200).map(Some)
        })
        .await?;
        Ok(address)
    }

    /// A client of the Service, with a new connection for each request.
    ///
    /// # Errors
    /// When there is no Service.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::new(self.service().await?)?.reconnecting(&self.token)
    }

    /// A client of one pod.
    ///
    /// # Errors
    /// When it has no address.
    pub(crate) fn client_of(&self, pod: &Pod) -> anyhow::Result<Client> {
        Client::new(Self::address(pod)?)?.bearing(&self.token)
    }

    /// A counter of a pod, summed over its labels.
    ///
    /// # Errors
    /// When the pod does not tell.
    pub(crate) async fn counted(&self, pod: &Pod, counter: &str) -> anyhow::Result<f64> {
        let page = self.client_of(pod)?.get("/metrics").await?.expect(200)?.text;
        let values = page.lines().filter(|line| line.starts_with(counter));
        Ok(values
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// Flushes a scope until nothing is left, however long each window takes.
    ///
    /// # Errors
    /// When a flush is refused, or an operation does not succeed in time.
    pub(crate) async fn flush_all(&self, client: &Client, scope: &str) -> anyhow::Result<()> {
        loop {
            let flushed = client.flush(scope, "respond-async").await?;
            if flushed.status == 200 {
                ensure!(flushed.body["status"] == "idle", "{flushed:?}");
                return Ok(());
            }
            let operation = flushed.expect(202)?.operation_id()?;
            client.operation_is(&operation, "succeeded", SOON).await?;
        }
    }

    /// No attempt ended but well or by being given back, and no rule of the ledger is broken.
    ///
    /// # Errors
    /// With what is not so.
    pub(crate) async fn nothing_lapsed(&self) -> anyhow::Result<()> {
        let sql = "select outcome, error_category, error_code, count(*) from pc_work_attempts
                   where outcome not in ('succeeded', 'released') group by outcome, error_category, error_code";
        let mut found = Vec::new();
        for row in self.database.raw().await?.rows(sql).await? {
            found.push((row.text(0)?, row.opt_text(1)?, row.opt_text(2)?, row.int(3)?));
        }
        ensure!(found.is_empty(), "attempts that ended otherwise: {found:?}");
        facts::hold(&self.database).await
    }

    /// Deletes the namespace and does not wait for its end.
    ///
    /// # Errors
    /// When the API server refuses.
    pub(crate) fn leave(&self) -> anyhow::Result<()> {
        let arguments = ["delete", "namespace", &self.namespace, "--wait=false"];
        self.cluster.kubectl().run(&arguments).map(drop)
    }

    /// Adds to a failure what the cluster says.
    pub(crate) fn explained<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        result.map_err(|error| {
            let kubectl = self.kubectl();
            let asked: [&[&str]; 4] = [
                &["get", "pods,jobs", "--output", "wide"],
                &[
                    "get",
                    "pcd",
                    &self.name,
                    "--output",
                    "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason} {.message}{\"\\n\"}{end}",
                ],
                &[
                    "get",
                    "events",
                    "--sort-by=.lastTimestamp",
                    "--output",
                    "custom-columns=AT:.lastTimestamp,WHAT:.involvedObject.name,WHY:.reason,SAID:.message",
                ],
                &[
                    "logs",
                    "--selector",
                    "app.kubernetes.io/part-of=powercontext",
                    "--all-containers",
                    "--tail",
                    "15",
                    "--prefix",
                ],
            ];
            let told = asked.map(|arguments| kubectl.run(arguments).unwrap_or_else(|error| error.to_string()));
            error.context(told.join("\n"))
        })
    }
}
