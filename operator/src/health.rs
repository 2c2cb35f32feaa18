//! Liveness, readiness and metrics of the operator itself, over HTTP.
//!
//! It listens on `[::]`, and on `0.0.0.0` where a machine has no IPv6. Ready means that the caches are filled; a replica
//! that does not lead is ready too, or its roll-out would never end.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::rt;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// Most connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Pause after a failed accept, so that a lack of file handles is no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whether the operator can do its work.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on it is, or is not.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bearer token of the metrics, as its digest.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The token, or nothing where it could not be sent in a header: it is empty or holds a blank.
    pub fn new(token: &SecretString) -> Option<Self> {
        let token = token.expose_secret();
        let can_be_sent = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        can_be_sent.then(|| Self(Sha256::digest(token).into()))
    }

    /// Whether the header holds it. The time this takes tells neither its content nor its length.
    fn is_in(&self, header: Option<&header::HeaderValue>) -> bool {
        let value = header.map(header::HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, token) = value.split_at_checked(b"Bearer ".len()).unwrap_or_default();
        let matches: bool = <[u8; 32]>::from(Sha256::digest(token)).ct_eq(&self.0).into();
        scheme.eq_ignore_ascii_case(b"Bearer ") && matches
    }
}

/// The token that the environment names. It is no argument, because everybody on a node sees those.
pub fn token_of_environment() -> Option<SecretString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one setting that the command line may not hold"
    )]
    std::env::var("POWERCONTEXT_OPERATOR_METRICS_TOKEN")
        .ok()
        .map(SecretString::from)
}

/// What is served.
#[derive(Clone)]
pub struct Pages {
    /// Whether the operator can do its work.
    pub ready: Readiness,
    /// Its metrics.
    pub metrics: Metrics,
    /// What must come with a request for them, if anything.
    pub token: Option<Token>,
}

/// Opens the port on every address of the machine.
///
/// # Errors
/// When neither `[::]` nor `0.0.0.0` can be bound.
pub async fn bind(port: u16) -> std::io::Result<TcpListener> {
    let six = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    match TcpListener::bind(six).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)).await,
    }
}

/// Serves until the token is cancelled.
pub async fn serve(listener: TcpListener, pages: Pages, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((socket, _)) = accepted else {
            rt::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let pages = pages.clone();
        rt::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = pages.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            // A connection that breaks concerns nobody but its client.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service)
                .await;
            drop(place);
        });
    }
}

impl Pages {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if *request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        match request.uri().path() {
            "/health/live" => plain(StatusCode::OK, "ok\n"),
            "/health/ready" if self.ready.get() => plain(StatusCode::OK, "ready\n"),
            "/health/ready" => plain(StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n"),
            "/metrics" if self.may_read_metrics(request) => self.metrics.page().map_or_else(
                |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "no metrics\n"),
                |page| plain(StatusCode::OK, page),
            ),
            "/metrics" => {
                let mut refusal = plain(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
                let scheme = header::HeaderValue::from_static("Bearer");
                refusal.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                refusal
            }
            _ => plain(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    fn may_read_metrics<B>(&self, request: &Request<B>) -> bool {
        let header = request.headers().get(header::AUTHORIZATION);
        self.token.as_ref().is_none_or(|token| token.is_in(header))
    }
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server, its port, and what ends it.
    async fn started(token: Option<&str>) -> (u16, Readiness, CancellationToken, tokio::task::JoinHandle<()>) {
        let (ready, stop) = (Readiness::default(), CancellationToken::new());
        let listener = bind(0).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let pages = Pages {
            ready: ready.clone(),
            metrics: Metrics::new().expect("valid names"),
            token: token.map(|token| Token::new(&SecretString::from(token)).expect("it can be sent")),
        };
        (port, ready, stop.clone(), rt::spawn(serve(listener, pages, stop)))
    }

    async fn get(port: u16, path: &str, authorization: Option<&str>) -> u16 {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut request = client.get(format!("http://127.0.0.1:{port}{path}"));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    #[tokio::test]
    async fn it_lives_at_once_and_is_ready_only_when_told() {
        let (port, ready, stop, server) = started(None).await;
        assert_eq!(get(port, "/health/live", None).await, 200);
        assert_eq!(get(port, "/health/ready", None).await, 503);
        ready.set(true);
        assert_eq!(get(port, "/health/ready", None).await, 200);
        assert_eq!(get(port, "/metrics", None).await, 200);
        assert_eq!(get(port, "/", None).await, 404);
        stop.cancel();
        server.await.expect("it ends by itself");
    }

    #[tokio::test]
    async fn metrics_need_the_token_where_there_is_one_and_health_never_does() {
        let (port, _, stop, server) = started(Some("canary-7f2e")).await;
        assert_eq!(get(port, "/health/live", None).await, 200);
        for wrong in [
            None,
            Some("Bearer canary-7f2"),
            Some("Bearer canary-7f2e1"),
            Some("Basic canary-7f2e"),
            Some("canary-7f2e"),
        ] {
            assert_eq!(get(port, "/metrics", wrong).await, 401, "{wrong:?}");
        }
        assert_eq!(get(port, "/metrics", Some("bearer canary-7f2e")).await, 200);
        stop.cancel();
        server.await.expect("it ends by itself");
    }

    #[test]
    fn a_token_that_no_header_can_hold_is_none() {
        for bad in ["", "a b", "a\n", "\u{e4}"] {
            assert!(Token::new(&SecretString::from(bad)).is_none(), "{bad:?}");
        }
    }
}
