//! One connection's bytes: checks each request's head before hyper sees it, and keeps the connection's deadlines.
//!
//! hyper is handed whole heads only, followed by exactly their bodies. A request that is refused is replaced by a small
//! stand-in, so that hyper still answers it in its turn, through the same path and with the same headers as any other;
//! what to answer travels beside it in [`Exchange`]. After a refusal, or a chunked request, nothing further is read as a
//! request: the connection closes with the answer.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::super::limits::{Alarm, ServerLimits};
use super::head::{Framing, HeadFault, check};
use crate::rt;

/// What hyper reads in place of a request that is refused. It never reaches the router.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// Bytes read from the socket at once while a head is incomplete.
const READ_BYTES: usize = 4096;
/// Most bytes that are read and dropped after a refusal.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What was found about the next request that hyper will hand over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To be answered by the router.
    Pass(Framing),
    /// To be answered with a fault.
    Refused(HeadFault),
}

#[derive(Default)]
struct State {
    verdicts: VecDeque<Verdict>,
    answering: bool,
    touched: bool,
}

/// What a connection's reader and its service tell each other. hyper keeps requests in order, so a queue is enough.
#[derive(Default)]
pub(super) struct Exchange(Mutex<State>);

impl Exchange {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, verdict: Verdict) {
        let mut state = self.state();
        state.verdicts.push_back(verdict);
        state.touched = true;
    }

    /// Whether no request has come yet.
    pub(super) fn is_untouched(&self) -> bool {
        !self.state().touched
    }

    /// Takes the verdict on the request that hyper just handed over; the connection counts as busy from now on.
    pub(super) fn begin(&self) -> Option<Verdict> {
        let mut state = self.state();
        state.answering = true;
        state.verdicts.pop_front()
    }

    /// The answer is ready to be written.
    pub(super) fn end(&self) {
        self.state().answering = false;
    }

    fn is_busy(&self) -> bool {
        let state = self.state();
        state.answering || !state.verdicts.is_empty()
    }
}

enum Phase {
    /// Between two requests, or inside a head.
    Head,
    /// Inside a body of which so many bytes are still to come.
    Body(u64),
    /// Everything that follows belongs to a chunked body.
    Chunked,
    /// A request was refused: what follows is not looked at.
    Refused,
    /// The client has gone, or was idle for too long.
    Over,
}

/// The socket, as hyper sees it.
pub(super) struct Wire<S> {
    socket: S,
    limits: Arc<ServerLimits>,
    exchange: Arc<Exchange>,
    phase: Phase,
    /// Bytes from the socket that hyper has not got yet.
    held: BytesMut,
    /// How many of them it may have.
    cleared: usize,
    /// How many of them are known not to end a head.
    scanned: usize,
    /// Whether bytes of a head have arrived.
    head_begun: bool,
    read_alarm: Alarm,
    write_alarm: Alarm,
    first: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(socket: S, limits: Arc<ServerLimits>, exchange: Arc<Exchange>) -> Self {
        Self {
            socket,
            limits,
            exchange,
            phase: Phase::Head,
            held: BytesMut::new(),
            cleared: 0,
            scanned: 0,
            head_begun: false,
            read_alarm: Alarm::default(),
            write_alarm: Alarm::default(),
            first: true,
        }
    }

    /// Closes the sending side, and reads on for a little when the client may still be sending: a socket closed over
    /// unread bytes is reset, and the reset can overtake the answer.
    pub(super) async fn close(mut self, linger: Duration) {
        if self.socket.shutdown().await.is_err() {
            return;
        }
        let quiet = matches!(self.phase, Phase::Over) || (matches!(self.phase, Phase::Head) && self.held.is_empty());
        if quiet {
            return;
        }
        let socket = &mut self.socket;
        let drain = async move {
            let mut sink = vec![0; 16 * 1024];
            let mut left = LINGER_BYTES_MAX;
            while let Ok(read @ 1..) = socket.read(&mut sink).await {
                left = left.saturating_sub(read);
                if left == 0 {
                    break;
                }
            }
        };
        // No longer waited for is no error: the client had its time.
        let _ = rt::within(linger, drain).await;
    }

    fn refuse(&mut self, fault: HeadFault) {
        self.exchange.announce(Verdict::Refused(fault));
        self.phase = Phase::Refused;
        self.held.clear();
        self.held.extend_from_slice(STAND_IN);
        self.cleared = STAND_IN.len();
        self.read_alarm.clear();
    }

    /// Looks at the held bytes. `true` when something was decided, `false` when more bytes are needed.
    fn judge(&mut self) -> bool {
        if !self.head_begun {
            // Empty lines before a request are skipped (RFC 9112, section 2.2).
            let blank = self.held.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
            self.held.advance(blank);
        }
        if self.held.is_empty() {
            return false;
        }
        if !self.head_begun {
            self.head_begun = true;
            if !self.first {
                self.read_alarm.clear();
            }
        }
        match check(&self.held, self.scanned, &self.limits) {
            Ok(None) => {
                self.scanned = self.held.len();
                false
            }
            Ok(Some(head)) => {
                self.exchange.announce(Verdict::Pass(head.framing));
                self.cleared = head.bytes;
                self.phase = match head.framing {
                    Framing::Length(bytes) => Phase::Body(bytes),
                    Framing::Chunked => Phase::Chunked,
                };
                self.scanned = 0;
                self.head_begun = false;
                self.first = false;
                self.read_alarm.clear();
                true
            }
            Err(fault) => {
                self.refuse(fault);
                true
            }
        }
    }

    /// Sets the deadline that applies now and says whether it is over. While an answer is made none applies.
    fn too_late(&mut self, cx: &mut Context<'_>) -> bool {
        if self.exchange.is_busy() {
            self.read_alarm.clear();
            return false;
        }
        let span = if self.first || self.head_begun {
            self.limits.head_read
        } else {
            self.limits.idle
        };
        self.read_alarm.arm(span);
        self.read_alarm.rings(cx)
    }

    /// Reads on in a head. Ready when something was decided.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.judge() {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut chunk);
            match Pin::new(&mut self.socket).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    self.phase = Phase::Over;
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(())) => self.held.extend_from_slice(read.filled()),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if self.too_late(cx) {
                        if self.head_begun {
                            self.refuse(HeadFault::TooSlow);
                        } else {
                            self.phase = Phase::Over;
                        }
                        return Poll::Ready(Ok(()));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads at most `left` bytes straight into hyper's buffer.
    fn poll_body(&mut self, cx: &mut Context<'_>, left: u64, out: &mut ReadBuf<'_>) -> Poll<io::Result<u64>> {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(out.remaining());
        let mut part = ReadBuf::new(out.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        out.advance(read);
        Poll::Ready(Ok(read as u64))
    }

    /// Starts the idle deadline anew after each part of an answer. hyper does not read again by itself once a read was
    /// pending during the answer, and the deadline is only set and polled by a read; so this asks for one.
    fn begin_idling(&mut self, cx: &Context<'_>) {
        if matches!(self.phase, Phase::Head) && !self.head_begun && !self.exchange.is_busy() {
            self.read_alarm.clear();
            cx.waker().wake_by_ref();
        }
    }

    /// Passes on the outcome of a write, and gives up on a client that takes nothing for too long.
    fn poll_stall(&mut self, cx: &mut Context<'_>, write: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if write.is_ready() {
            self.write_alarm.clear();
            self.begin_idling(cx);
            return write;
        }
        self.write_alarm.arm(self.limits.write_stall);
        if self.write_alarm.rings(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    fn hand_over(&mut self, out: &mut ReadBuf<'_>) {
        let bytes = self.cleared.min(out.remaining());
        out.put_slice(&self.held[..bytes]);
        self.held.advance(bytes);
        self.cleared -= bytes;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.cleared > 0 {
                this.hand_over(out);
                return Poll::Ready(Ok(()));
            }
            match this.phase {
                Phase::Head => ready!(this.poll_head(cx))?,
                Phase::Body(0) => this.phase = Phase::Head,
                Phase::Body(left) => {
                    if this.held.is_empty() {
                        let read = ready!(this.poll_body(cx, left, out))?;
                        this.phase = Phase::Body(left - read);
                        return Poll::Ready(Ok(()));
                    }
                    this.cleared = this.held.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    this.phase = Phase::Body(left - this.cleared as u64);
                }
                Phase::Chunked if this.held.is_empty() => return Pin::new(&mut this.socket).poll_read(cx, out),
                Phase::Chunked => this.cleared = this.held.len(),
                // The answer ends the connection; reading must not, or hyper would take it for a client that left.
                Phase::Refused => return Poll::Pending,
                Phase::Over => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.poll_stall(cx, write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.socket).poll_write_vectored(cx, parts);
        this.poll_stall(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
