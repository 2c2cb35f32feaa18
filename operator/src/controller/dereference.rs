//! What a reconcile reads from outside: the secrets that the spec names, and what the roles report of themselves.
//!
//! Secrets are read one by one by name, so that the operator needs no right to list them, and their values are never
//! stored. The roles are asked over HTTP with the deployment's own token; one that does not answer costs two seconds and
//! delays no other deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use powercontext_crds::v1alpha1::{PowerContextDeploymentSpec, SecretKeyRef};
use secrecy::{ExposeSecret as _, SecretString};

use super::build::HTTP_PORT;
use super::validate::{Dereferenced, SecretFault, named_secrets};
use crate::error::{ReconcileError, Step, at};
use crate::names::Role;
use crate::plan::{Facts, PodSeen};

/// Time for one role's answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Most bytes of an answer that are read.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Roles that are asked at once.
const ASKED_AT_ONCE: usize = 16;
/// Pods of a role that are asked when only their database's view is wanted.
const PODS_ASKED: usize = 2;
/// Pods that are asked of a role that leads: each tells only the leases that it holds itself.
const LEADERS_ASKED: usize = 16;

/// Reads every secret that the spec names.
///
/// # Errors
/// When the API server does not answer or forbids it. A secret that is not there is no error but a finding.
pub async fn secrets(
    client: &Client,
    namespace: &str,
    spec: &PowerContextDeploymentSpec,
) -> Result<BTreeMap<SecretKeyRef, Result<SecretString, SecretFault>>, ReconcileError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let named = named_secrets(spec);
    // Each once, whatever number of its keys is named, and all at the same time.
    let secrets: BTreeSet<&String> = named.iter().map(|named| &named.name).collect();
    let api = &api;
    let reads = secrets.into_iter().map(|name| async move {
        let secret = api.get_opt(name).await.map_err(at(Step::Dereference))?;
        Ok::<_, ReconcileError>((name, secret))
    });
    let read: BTreeMap<&String, Option<Secret>> = try_join_all(reads).await?.into_iter().collect();
    let value_of = |named: &SecretKeyRef| value(read.get(&named.name).and_then(Option::as_ref), &named.key);
    Ok(named.iter().map(|named| (named.clone(), value_of(named))).collect())
}

fn value(secret: Option<&Secret>, key: &str) -> Result<SecretString, SecretFault> {
    let data = secret.ok_or(SecretFault::Missing)?.data.as_ref();
    let bytes = data.and_then(|data| data.get(key)).ok_or(SecretFault::KeyMissing)?;
    let text = std::str::from_utf8(&bytes.0).map_err(|_| SecretFault::NotText)?;
    Ok(SecretString::from(text))
}

/// Asks the roles of deployments.
#[derive(Debug, Clone)]
pub struct Asker {
    client: reqwest::Client,
    port: u16,
}

impl Asker {
    /// A client that goes where it is told and nowhere else.
    ///
    /// # Errors
    /// When no client can be made on this machine.
    pub fn new() -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // The next question comes later than a kept connection would be worth.
            .pool_max_idle_per_host(0)
            .connect_timeout(ANSWER)
            .timeout(ANSWER)
            .build()?;
        Ok(Self {
            client,
            port: u16::try_from(HTTP_PORT).unwrap_or_default(),
        })
    }

    /// What the pods report. `all`: the number of runs of each is wanted, else a few of each role are enough.
    pub async fn ask(&self, pods: &[PodSeen], read: &Dereferenced, token: Option<&SecretKeyRef>, all: bool) -> Facts {
        let token = token.and_then(|token| read.secrets.get(token)?.as_ref().ok());
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let asked: Vec<(String, String)> = pods
            .iter()
            .filter(|pod| pod.running && !pod.terminating && pod.job.is_none())
            .filter(|pod| {
                let count = counts.entry(pod.component.as_str()).or_default();
                *count += 1;
                let leads = Role::parse(&pod.component).is_some_and(Role::schedules);
                let enough = if leads { LEADERS_ASKED } else { PODS_ASKED };
                all || *count <= enough
            })
            .filter_map(|pod| Some((pod.name.clone(), url(pod.ip.as_deref()?, self.port))))
            .collect();
        let pages = asked.into_iter().map(|(pod, url)| async move {
            let page = self.page(&url, token).await;
            page.map(|page| (pod, page))
        });
        let mut pages = stream::iter(pages).buffered(ASKED_AT_ONCE);
        let mut facts = Facts::default();
        while let Some(page) = pages.next().await {
            if let Some((pod, page)) = page {
                facts.add(&pod, &page);
            }
        }
        facts
    }

    /// A page, or nothing where there is no answer, a refusal, or more than should be.
    async fn page(&self, url: &str, token: Option<&SecretString>) -> Option<String> {
        let mut request = self.client.get(url);
        if let Some(token) = token {
            request = request.bearer_auth(token.expose_secret());
        }
        let mut response = request.send().await.ok()?.error_for_status().ok()?;
        let mut page = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            page.extend_from_slice(&chunk);
            if page.len() > PAGE_BYTES_MAX {
                return None;
            }
        }
        String::from_utf8(page).ok()
    }
}

fn url(ip: &str, port: u16) -> String {
    if ip.contains(':') {
        format!("http://[{ip}]:{port}/metrics")
    } else {
        format!("http://{ip}:{port}/metrics")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::rt;

    #[test]
    fn a_secret_is_there_or_its_key_is_not_or_it_is_no_text() {
        let secret = Secret {
            data: Some(
                [
                    ("good".to_owned(), ByteString(b"text".to_vec())),
                    ("bad".to_owned(), ByteString(vec![0xff])),
                ]
                .into(),
            ),
            ..Secret::default()
        };
        let read = |secret: Option<&Secret>, key: &str| value(secret, key).map(|text| text.expose_secret().to_owned());
        assert_eq!(read(Some(&secret), "good").as_deref(), Ok("text"));
        assert_eq!(read(Some(&secret), "bad"), Err(SecretFault::NotText));
        assert_eq!(read(Some(&secret), "none"), Err(SecretFault::KeyMissing));
        assert_eq!(read(None, "good"), Err(SecretFault::Missing));
    }

    #[test]
    fn an_address_of_either_family_becomes_a_url() {
        assert_eq!(url("10.0.0.1", 8000), "http://10.0.0.1:8000/metrics");
        assert_eq!(url("fd00::1", 8000), "http://[fd00::1]:8000/metrics");
    }

    /// A role at a loopback address that wants the token and tells one thing.
    async fn role(ip: &str, port: u16, stop: CancellationToken) -> u16 {
        let listener = TcpListener::bind((ip, port)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        rt::spawn(async move {
            while let Some(Ok((mut socket, _))) = stop.run_until_cancelled(listener.accept()).await {
                let mut head = vec![0; 4096];
                let read = socket.read(&mut head).await.expect("a request");
                let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
                let page = "powercontext_runtime_members{role=\"api\",build=\"b\"} 2\n";
                let answer = if head.contains("authorization: bearer canary-token") {
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len())
                } else {
                    "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned()
                };
                socket.write_all(answer.as_bytes()).await.expect("an answer");
            }
        });
        port
    }

    #[tokio::test]
    async fn roles_are_asked_with_the_token_and_one_that_is_silent_costs_two_seconds() {
        let stop = CancellationToken::new();
        let port = role("127.0.0.1", 0, stop.clone()).await;
        // It accepts and never says a word.
        let silent = TcpListener::bind(("127.0.0.2", port)).await.expect("a free port");
        let pods = ["127.0.0.2", "127.0.0.1"].map(|ip| PodSeen {
            name: ip.to_owned(),
            component: "api".to_owned(),
            ip: Some(ip.to_owned()),
            running: true,
            ..PodSeen::default()
        });
        let mut asker = Asker::new().expect("a client");
        asker.port = port;
        let token = crate::testing::reference("pc-auth", "token");
        let read = crate::testing::secrets();
        let began = rt::now();
        let facts = asker.ask(&pods, &read, Some(&token), false).await;
        assert!(began.elapsed() < ANSWER * 2);
        assert_eq!(facts.members_of(Role::Api, "b"), Some(2));
        let nobody = asker.ask(&pods[1..], &read, None, false).await;
        assert_eq!(nobody.members, None);
        drop(silent);
        stop.cancel();
    }
}
