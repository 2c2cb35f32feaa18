//! One child process, seen from its worker: starting it, talking to it, and making sure that it has ended.
//!
//! Children are started from one thread that lives as long as this process, because the kernel ties the signal of a
//! parent's death to the thread that forked. They get a process group of their own, so that a Ctrl-C at a terminal ends the
//! worker in order and not the children under it, and an environment of their own, so that no secret of the worker's is in it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::rt;
use crate::worker::child::wire::{FromChild, Listener, Speaker, ToChild, WireFault};

/// Between SIGTERM and SIGKILL, and between the last message and SIGKILL.
const TERM_TO_KILL: Duration = Duration::from_secs(1);

/// What a child inherits: how to reach and trust a provider, nothing of PowerContext's own.
const INHERITED: [&str; 9] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "RUST_BACKTRACE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// A child that runs, or was not yet seen to end.
pub(super) struct Process {
    child: tokio::process::Child,
    speaker: Speaker<ChildStdin>,
    listener: Listener<ChildStdout>,
}

/// How a child ended, for the log.
pub(super) struct Exit(io::Result<ExitStatus>);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(status) => write!(f, "{status}"),
            Err(_) => f.write_str("unknown"),
        }
    }
}

impl Process {
    /// Starts a child.
    ///
    /// # Errors
    /// What the kernel says: no such program, too many processes, no memory.
    pub(super) async fn start(program: &Path) -> io::Result<Self> {
        let (reply, started) = oneshot::channel();
        let request = Request {
            program: program.to_owned(),
            runtime: Handle::current(),
            reply,
        };
        let gone = || io::Error::other("the thread that starts children is gone");
        spawner()?.send(request).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?
    }

    /// Whether the child has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Says one message.
    ///
    /// # Errors
    /// [`WireFault`].
    pub(super) async fn send(&mut self, message: &ToChild) -> Result<(), WireFault> {
        self.speaker.say(message).await
    }

    /// Hears one message.
    ///
    /// # Errors
    /// [`WireFault`].
    pub(super) async fn receive(&mut self) -> Result<FromChild, WireFault> {
        self.listener.hear().await
    }

    /// Waits for the exit of a child that has said its last word.
    pub(super) async fn end(self) -> Exit {
        let Self { mut child, speaker, .. } = self;
        // A child ends when nobody speaks to it any more.
        drop(speaker);
        gone(&mut child).await
    }

    /// SIGTERM, a second, SIGKILL; returns when the exit is seen, however long that takes.
    pub(super) async fn stop(self) -> Exit {
        let Self { mut child, speaker, .. } = self;
        drop(speaker);
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It is not reaped yet, so the id is still its own. One that ended meanwhile needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        gone(&mut child).await
    }
}

async fn gone(child: &mut tokio::process::Child) -> Exit {
    if let Ok(exit) = rt::within(TERM_TO_KILL, child.wait()).await {
        return Exit(exit);
    }
    // It ended in this very moment, or takes the signal.
    let _ = child.start_kill();
    Exit(child.wait().await)
}

/// A child to start, and for whom.
struct Request {
    program: PathBuf,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Process>>,
}

/// The thread that starts children.
fn spawner() -> io::Result<&'static mpsc::Sender<Request>> {
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    if let Some(spawner) = SPAWNER.get() {
        return Ok(spawner);
    }
    let (sender, requests) = mpsc::channel::<Request>();
    std::thread::Builder::new().name("children".to_owned()).spawn(move || {
        for request in requests {
            let _inside = request.runtime.enter();
            // Whoever asked may be gone; then the child is dropped, which ends it.
            let _ = request.reply.send(spawn(&request.program));
        }
    })?;
    // The first of two that raced stays; the thread of the other ends with its channel.
    Ok(SPAWNER.get_or_init(|| sender))
}

fn spawn(program: &Path) -> io::Result<Process> {
    let mut command = Command::new(program);
    command
        .arg0("powercontext")
        .args(["worker-child", "--parent", &std::process::id().to_string()])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for name in INHERITED {
        #[expect(
            clippy::disallowed_methods,
            reason = "a child reads the proxies and certificates of its own environment"
        )]
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut child = command.spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("a child has no pipes"));
    };
    Ok(Process {
        child,
        speaker: Speaker::new(stdin),
        listener: Listener::new(stdout),
    })
}
