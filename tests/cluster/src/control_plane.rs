//! One control plane for a test process: built and started when the first test asks, ended with the process.
//!
//! `tests/support/kubernetes/up --hold` owns the servers and ends them when its standard input does, which happens however
//! this process ends. With `POWERCONTEXT_TEST_KUBERNETES=DIR` the one that `up` started in that folder is used instead.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use crate::kubectl::Kubectl;

/// Names the folder of a running control plane.
const VARIABLE: &str = "POWERCONTEXT_TEST_KUBERNETES";
/// The node that every pod of the tests is on. Nobody runs it.
pub const NODE: &str = "node-1";

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    programs: PathBuf,
    // Its end is the end of the servers.
    _hold: Option<Child>,
}

static ONE: OnceLock<Result<ControlPlane, String>> = OnceLock::new();

/// The control plane of this process, with the resource's definition and a node.
///
/// # Errors
/// When it cannot be built or does not start; the script says why on standard error.
pub fn control_plane() -> anyhow::Result<&'static ControlPlane> {
    let one = ONE.get_or_init(|| ControlPlane::start().map_err(|error| format!("{error:#}")));
    one.as_ref().map_err(|error| anyhow!("no control plane: {error}"))
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl ControlPlane {
    fn start() -> anyhow::Result<Self> {
        let scripts = repository().join("tests/support/kubernetes");
        let built = Command::new(scripts.join("build")).stderr(Stdio::inherit()).output()?;
        if !built.status.success() {
            bail!("the programs could not be built");
        }
        let programs = PathBuf::from(String::from_utf8(built.stdout)?.trim());
        let plane = if let Some(folder) = crate::env(VARIABLE) {
            Self {
                folder: folder.into(),
                programs,
                _hold: None,
            }
        } else {
            Self::hold(&scripts.join("up"), programs)?
        };
        // Two test processes may share one control plane; this is the same for both.
        plane
            .kubectl()
            .run(&["apply", "--server-side", "--force-conflicts", "-f", &crds()])?;
        plane.kubectl().established("powercontextdeployments.powercontext.io")?;
        Ok(plane)
    }

    fn hold(up: &Path, programs: PathBuf) -> anyhow::Result<Self> {
        let mut child = Command::new(up)
            .arg("--hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // An interrupt at the keyboard ends the tests, and that ends it in order.
            .process_group(0)
            .spawn()
            .context("starting tests/support/kubernetes/up")?;
        let mut line = String::new();
        let output = child.stdout.take().context("it has an output")?;
        BufReader::new(output).read_line(&mut line)?;
        let folder = line.trim().rsplit_once("dir=").context("it said nothing")?.1.to_owned();
        Ok(Self {
            folder: folder.into(),
            programs,
            _hold: Some(child),
        })
    }

    /// The file by which an administrator reaches it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Where the API server writes down who asked for what.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("log/audit")
    }

    /// A program that was built with it.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// `kubectl` of an administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.program("kubectl"), self.kubeconfig())
    }

    /// A client of an administrator.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        // Another test may have been first.
        let _ = provider.install_default();
        let file = Kubeconfig::read_from(self.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// Writes a kubeconfig with a fresh token of a service account into the folder; its path.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn kubeconfig_of(
        &self,
        client: &Client,
        namespace: &str,
        account: &str,
        folder: &Path,
    ) -> anyhow::Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let wanted = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request(account, &PostParams::default(), &wanted)
            .await?;
        let token = token.status.context("a token")?.token;
        let file = Kubeconfig::read_from(self.kubeconfig())?;
        let mut file = serde_json::to_value(file)?;
        file["users"] = json!([{ "name": "admin", "user": { "token": token } }]);
        let path = folder.join(format!("kubeconfig-{account}"));
        std::fs::write(&path, serde_yaml::to_string(&file)?)?;
        Ok(path)
    }

    /// Makes the node that pods are bound to, unless it is there.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn ensure_node(&self, client: &Client) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        nodes
            .patch(NODE, &PatchParams::apply("tests"), &Patch::Apply(node))
            .await?;
        Ok(())
    }
}

fn crds() -> String {
    repository().join("crds").display().to_string()
}
