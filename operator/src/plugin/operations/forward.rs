//! One HTTP connection to an API pod through a port that the API server forwards.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use secrecy::SecretString;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Question, answer, request};
use crate::controller::build::HTTP_PORT;
use crate::names::Role;
use crate::plan::PodSeen;
use crate::plugin::cluster::Cluster;
use crate::plugin::fault::PluginError;
use crate::rt;

/// Time for one answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Most bytes of an answer.
const BYTES_MAX: usize = 16 << 20;

/// A connection to an API, and the token that it wants.
pub(super) struct Api {
    sender: SendRequest<Full<Bytes>>,
    token: Option<SecretString>,
    place: String,
}

impl Api {
    /// Connects to a ready API pod of a deployment.
    pub(super) async fn open(cluster: &Cluster, resource: &PowerContextDeployment) -> Result<Self, PluginError> {
        let name = resource.metadata.name.clone().unwrap_or_default();
        let token = match &resource.spec.auth.token_secret_ref {
            Some(named) => Some(cluster.secret(named).await?),
            None => None,
        };
        let pods = cluster.pods_of(&name, Role::Api.as_str()).await?;
        let pod = ready(&pods).ok_or_else(|| {
            PluginError::Missing(format!(
                "{name} in namespace {} has no API pod that is ready; `status` says how its roles stand",
                cluster.namespace
            ))
        })?;
        let port = u16::try_from(HTTP_PORT).unwrap_or_default();
        let forwarded = cluster.pods().portforward(&pod, &[port]).await;
        let mut forwarded = forwarded.map_err(|error| match error {
            kube::Error::UpgradeConnection(_) => PluginError::Api(format!(
                "no port of pod {pod} is forwarded: {}",
                crate::plugin::fault::innermost(&error)
            )),
            error => cluster.failed("create", "pods/portforward")(error),
        })?;
        let stream = forwarded.take_stream(port);
        let stream = stream.ok_or_else(|| PluginError::Api(format!("port {port} of pod {pod} was not forwarded")))?;
        Self::over(stream, token, format!("API pod {pod}")).await
    }

    /// Speaks HTTP over a stream.
    pub(super) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        token: Option<SecretString>,
        place: String,
    ) -> Result<Self, PluginError> {
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|_| PluginError::Api(format!("{place} closed the connection")))?;
        // Its end is seen by whoever waits for an answer.
        rt::spawn(async move { connection.await.ok() });
        Ok(Self { sender, token, place })
    }

    /// Asks and waits for the answer.
    pub(super) async fn ask(&mut self, question: &Question) -> Result<Value, PluginError> {
        let request = request(question, self.token.as_ref())?;
        let place = &self.place;
        let lost = || PluginError::Api(format!("{place} closed the connection"));
        let asking = async {
            self.sender.ready().await.map_err(|_| lost())?;
            let response = self.sender.send_request(request).await.map_err(|_| lost())?;
            let status: StatusCode = response.status();
            let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
            let body = body.map_err(|_| PluginError::Api(format!("the answer of {place} broke off or is too long")))?;
            answer(question, status, &body.to_bytes())
        };
        let seconds = ANSWER.as_secs();
        let answered = rt::within(ANSWER, asking).await;
        answered.unwrap_or_else(|| {
            Err(PluginError::Api(format!(
                "{} did not answer within {seconds} s",
                self.place
            )))
        })
    }
}

/// A pod that is ready and stays.
fn ready(pods: &[Pod]) -> Option<String> {
    let seen = pods.iter().map(PodSeen::from_pod);
    let mut ready = seen.filter(|pod| pod.ready && pod.running && !pod.terminating);
    ready.next().map(|pod| pod.name)
}
