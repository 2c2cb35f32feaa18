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
pub async fn serve(listener: TcpListener, ready: Readiness, metrics: Metrics, stop: CancellationToken) {
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
        let (ready, metrics) = (ready.clone(), metrics.clone());
        rt::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(request.method(), request.uri().path(), &ready, &metrics);
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

fn answer(method: &Method, path: &str, ready: &Readiness, metrics: &Metrics) -> Response<Full<Bytes>> {
    if method != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match path {
        "/health/live" => plain(StatusCode::OK, "ok\n"),
        "/health/ready" if ready.get() => plain(StatusCode::OK, "ready\n"),
        "/health/ready" => plain(StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n"),
        "/metrics" => metrics.page().map_or_else(
            |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "no metrics\n"),
            |page| plain(StatusCode::OK, page),
        ),
        _ => plain(StatusCode::NOT_FOUND, "not found\n"),
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

    #[tokio::test]
    async fn it_lives_at_once_and_is_ready_only_when_told() {
        let ready = Readiness::default();
        let stop = CancellationToken::new();
        let listener = bind(0).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let metrics = Metrics::new().expect("valid names");
        let server = rt::spawn(serve(listener, ready.clone(), metrics, stop.clone()));
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let get = |path: &str| {
            let request = client.get(format!("http://127.0.0.1:{port}{path}")).send();
            async move { request.await.expect("an answer").status().as_u16() }
        };
        assert_eq!(get("/health/live").await, 200);
        assert_eq!(get("/health/ready").await, 503);
        ready.set(true);
        assert_eq!(get("/health/ready").await, 200);
        assert_eq!(get("/metrics").await, 200);
        assert_eq!(get("/").await, 404);
        stop.cancel();
        server.await.expect("it ends by itself");
    }
}
