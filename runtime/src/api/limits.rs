//! Everything that bounds a connection: bytes, counts and spans of process time.
//!
//! Tests shrink the spans, so a server takes them as a value; the defaults are what every role runs with.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::rt;

/// Limits of a server and of each of its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Open connections; one more is answered 503 and closed.
    pub connections_max: usize,
    /// Bytes of a request line with its header.
    pub head_bytes_max: usize,
    /// Header fields of a request; at most [`HEADER_FIELDS_MAX`].
    pub header_fields_max: usize,
    /// Bytes of a request body.
    pub body_bytes_max: usize,
    /// From the first byte of a request, or from the connection for its first one, to the end of the header.
    pub head_read: Duration,
    /// Between two parts of a body.
    pub body_gap: Duration,
    /// From the first wait for a body to its end.
    pub body_total: Duration,
    /// Between an answer and the next request on a connection.
    pub idle: Duration,
    /// Between two parts of an answer that the client takes.
    pub write_stall: Duration,
    /// After an answer that refuses the rest of a request: how long that rest is read and dropped, so that the client
    /// gets to see the answer before its connection is reset.
    pub linger: Duration,
    /// After the end was asked for: how long a connection that has sent no request yet is waited for.
    pub first: Duration,
    /// After the end was asked for: how long requests in progress may take.
    pub drain: Duration,
}

/// Most header fields that any server reads.
pub const HEADER_FIELDS_MAX: usize = 100;

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 2048,
            head_bytes_max: 16 * 1024,
            header_fields_max: HEADER_FIELDS_MAX,
            body_bytes_max: 4 * 1024 * 1024,
            head_read: Duration::from_secs(10),
            body_gap: Duration::from_secs(10),
            body_total: Duration::from_mins(1),
            idle: Duration::from_secs(75),
            write_stall: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            first: Duration::from_secs(1),
            drain: Duration::from_secs(15),
        }
    }
}

/// A deadline that is set once and polled beside the input it bounds.
#[derive(Default)]
pub(super) struct Alarm(Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>);

impl Alarm {
    /// Sets the deadline unless it is set already.
    pub(super) fn arm(&mut self, span: Duration) {
        if self.0.is_none() {
            self.0 = Some(Box::pin(rt::sleep(span)));
        }
    }

    /// Forgets the deadline.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Whether the deadline is set and over. Else the task is woken when it is.
    pub(super) fn rings(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().poll(cx) == Poll::Ready(()),
            None => false,
        }
    }
}
