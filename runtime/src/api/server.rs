//! The HTTP server: accepts connections, bounds each of them, and ends without cutting anybody off.
//!
//! `axum::serve` has no header timeout and no limits, so the accept loop is ours: every connection gets hyper over a
//! [`wire::Wire`] that checks heads and keeps deadlines. Every answer, whoever made it, leaves through [`answer`], which
//! gives it its request id and turns a panic of a handler into a plain 500.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::body::LimitedBody;
use super::limits::ServerLimits;
use super::problem::Problem;
use super::request_id::{REQUEST_ID_HEADER, RequestId};
use crate::rt;

mod head;
mod wire;

use head::Framing;
use wire::{Exchange, Verdict, Wire};

/// Pause after the system could not accept a connection, usually because descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request in progress was answered.
    Clean,
    /// So many connections were cut at the end of the grace.
    Cut(usize),
}

/// Serves until `shutdown`: then takes no new connection and no further request, answers what is in progress within
/// [`ServerLimits::drain`], and cuts the rest. In progress is also the first request of a connection that the system had accepted
/// by then. From `leaving` on each answer is the last of its connection, so that who keeps one goes elsewhere before it is closed
/// under a request.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    leaving: CancellationToken,
    shutdown: CancellationToken,
) -> Drained {
    let server = Server {
        router,
        places: Arc::new(Semaphore::new(limits.connections_max)),
        limits: Arc::new(limits),
        leaving,
        shutdown,
        cut: CancellationToken::new(),
        connections: TaskTracker::new(),
    };
    server.accept(listener).await;
    server.drain().await
}

struct Server {
    router: Router,
    places: Arc<Semaphore>,
    limits: Arc<ServerLimits>,
    leaving: CancellationToken,
    shutdown: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    /// Accepts until the end is asked for; the listener is closed on return.
    async fn accept(&self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return self.accept_rest(listener),
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, _)) => self.admit(socket),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(kind = ?error.kind(), "cannot accept connections");
                    rt::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Accepts those whom the system has let in already: closing the listener would reset them without an answer. The system is
    /// asked, because the runtime knows only what it has been told.
    fn accept_rest(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        // As many as may be open; behind them whoever comes would be turned away for ever.
        for _ in 0..self.limits.connections_max {
            let accepted = listener.accept().and_then(|(socket, _)| {
                socket.set_nonblocking(true)?;
                TcpStream::from_std(socket)
            });
            match accepted {
                Ok(socket) => self.admit(socket),
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(&self, socket: TcpStream) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let answer = head::turned_away(RequestId::random().as_str());
            // A new socket takes this at once; if not, closing it says enough.
            let _ = socket.try_write(answer.as_bytes());
            return;
        };
        // Answers are written whole, so waiting for more to send with them only costs time.
        if socket.set_nodelay(true).is_err() {
            return;
        }
        let connection = Connection {
            router: self.router.clone(),
            limits: Arc::clone(&self.limits),
            leaving: self.leaving.clone(),
            shutdown: self.shutdown.clone(),
        };
        let cut = self.cut.clone();
        rt::spawn(self.connections.track_future(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                () = connection.run(socket, place) => {}
            }
        }));
    }

    async fn drain(self) -> Drained {
        self.connections.close();
        if rt::within(self.limits.drain, self.connections.wait()).await.is_ok() {
            return Drained::Clean;
        }
        let left = self.connections.len();
        self.cut.cancel();
        self.connections.wait().await;
        tracing::warn!(connections = left, "connections cut at the end of the grace");
        Drained::Cut(left)
    }
}

/// Whether the error concerns the one connection that was about to be accepted and not the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

struct Connection {
    router: Router,
    limits: Arc<ServerLimits>,
    leaving: CancellationToken,
    shutdown: CancellationToken,
}

impl Connection {
    /// Serves one connection to its end; the place is free again afterwards.
    async fn run(self, socket: TcpStream, _place: OwnedSemaphorePermit) {
        let Self {
            router,
            limits,
            leaving,
            shutdown,
        } = self;
        let exchange = Arc::new(Exchange::default());
        let wire = Wire::new(socket, Arc::clone(&limits), Arc::clone(&exchange));
        let service = service_fn(|request: Request<Incoming>| {
            let (router, limits, exchange) = (router.clone(), Arc::clone(&limits), Arc::clone(&exchange));
            let (leaving, shutdown) = (leaving.clone(), shutdown.clone());
            let answer: BoxFuture<'static, Result<Response, Infallible>> = Box::pin(async move {
                let verdict = exchange.begin();
                let mut response = answer(router, limits, verdict, request).await;
                if leaving.is_cancelled() || shutdown.is_cancelled() {
                    close_after(&mut response);
                }
                exchange.end();
                Ok(response)
            });
            answer
        });
        let mut connection = http1::Builder::new()
            // The wire has the deadline of the header.
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(wire), service);
        let mut stop = pin!(async {
            shutdown.cancelled().await;
            if exchange.is_untouched() {
                rt::sleep(limits.first).await;
            }
        });
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                // What has arrived comes before the end. How it ended is of no interest: the client left, or it was answered.
                _ = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break,
                () = &mut stop, if !stopping => {
                    stopping = true;
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
            }
        }
        let wire = connection.into_parts().io.into_inner();
        wire.close(limits.linger).await;
    }
}

/// Answers one request.
async fn answer(
    router: Router,
    limits: Arc<ServerLimits>,
    verdict: Option<Verdict>,
    request: Request<Incoming>,
) -> Response {
    let id = RequestId::random();
    let body_finished = Arc::new(AtomicBool::new(true));
    let (mut response, reusable) = match verdict {
        Some(Verdict::Pass(framing)) => {
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(id.clone());
            let body = LimitedBody::new(body, limits, Arc::clone(&body_finished));
            let request = Request::from_parts(parts, Body::new(body));
            let response = run(router, request, &id).await;
            (response, framing != Framing::Chunked)
        }
        Some(Verdict::Refused(fault)) => (fault.problem().into_response(), false),
        // hyper handed over a request that the wire did not: a defect, answered as one.
        None => (Problem::internal_error().into_response(), false),
    };
    if response.status().is_server_error() {
        tracing::warn!(
            request_id = id.as_str(),
            status = response.status().as_u16(),
            "request not served"
        );
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID_HEADER, id.to_header());
    // The rest of an unread body, or what may hide behind a chunked one, is not looked at.
    if !reusable || !body_finished.load(Ordering::Relaxed) {
        close_after(&mut response);
    }
    response
}

/// Makes an answer the last one of its connection.
fn close_after(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

async fn run(router: Router, request: Request<Body>, id: &RequestId) -> Response {
    match AssertUnwindSafe(router.oneshot(request)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_panic) => {
            tracing::error!(request_id = id.as_str(), "a handler panicked");
            Problem::internal_error().into_response()
        }
    }
}

#[cfg(test)]
#[path = "server_end_tests.rs"]
mod end_tests;

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
