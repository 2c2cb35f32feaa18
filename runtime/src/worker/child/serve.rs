//! The child's side: one invocation, told and answered over the pipes to the worker.
//!
//! It arms the signal of its parent's death before anything else, then makes sure that the parent is still the one that
//! started it. It opens no database and no listening socket. Whatever happens to the worker, its input ends, and so does it.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, mpsc};

use crate::families::{
    Cancel, Committed, DomainWrite, Done, HostError, Load, Loaded, ProcessorHost, Reserve, Reserved, Search, SearchHit,
};
use crate::rt;
use crate::telemetry::log;
use crate::worker::child::wire::{Answer, Ask, FromChild, Listener, Speaker, Start, ToChild, WireFault};

type Out = Speaker<pipe::Sender>;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildExit {
    /// It said how its run ended, or nobody wanted one.
    Done,
    /// It was not started by a worker.
    NoWorker,
    /// Its worker is gone, or stopped speaking.
    Orphaned,
}

/// Serves one invocation for the worker with this process id.
pub async fn serve(parent: u32) -> ChildExit {
    if io::stdin().is_terminal() || set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return ChildExit::NoWorker;
    }
    // A parent that died before the signal was armed has left this process to somebody else.
    let is_parent = getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent);
    if !is_parent {
        return ChildExit::Orphaned;
    }
    prefer_to_be_killed();
    let Ok((mut listener, mut speaker)) = pipes() else {
        return ChildExit::NoWorker;
    };
    if speaker.say(&FromChild::Ready).await.is_err() {
        return ChildExit::Orphaned;
    }
    match listener.hear::<ToChild>().await {
        Ok(ToChild::Start(start)) => invocation(*start, listener, speaker).await,
        Err(WireFault::Closed) => ChildExit::Done,
        Ok(ToChild::Answer(_)) | Err(_) => ChildExit::Orphaned,
    }
}

/// A machine short of memory ends a child, whose run is retried, before the worker that holds all leases.
fn prefer_to_be_killed() {
    // A kernel that does not let this be set leaves the choice to itself.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
}

fn pipes() -> io::Result<(Listener<pipe::Receiver>, Out)> {
    let input = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    Ok((Listener::new(input), Speaker::new(output)))
}

async fn invocation(start: Start, mut listener: Listener<pipe::Receiver>, speaker: Out) -> ChildExit {
    let (level, format) = start.log.parts();
    // Nothing logged before, so nothing was set up before.
    let _ = log::init(level, format);
    let (answers, receiver) = mpsc::channel(1);
    let host = Arc::new(PipeHost {
        speaker: Mutex::new(speaker),
        answers: Mutex::new(receiver),
    });
    let mut run = {
        let host = Arc::clone(&host);
        // On a task of its own, so that its panic is an end that can be told.
        rt::spawn(async move { run(&start, &*host).await })
    };
    let result = loop {
        tokio::select! {
            biased;
            ended = &mut run => break ended.unwrap_or(Err(FailCode::Unhandled)),
            message = listener.hear::<ToChild>() => match message {
                Ok(ToChild::Answer(answer)) => {
                    // The run that asked may have ended meanwhile.
                    let _ = answers.send(*answer).await;
                }
                Ok(ToChild::Start(_)) | Err(_) => return ChildExit::Orphaned,
            },
        }
    };
    let end = FromChild::End(result.map(Box::new));
    let said = host.speaker.lock().await.say(&end).await;
    match said {
        Ok(()) => ChildExit::Done,
        // It was no message that the worker could take, so the worker must not wait for one.
        Err(_) => ChildExit::Orphaned,
    }
}

async fn run(start: &Start, host: &dyn ProcessorHost) -> Result<Done, FailCode> {
    let family = start.family.family().map_err(|fault| {
        tracing::error!(error = %fault, "the model's settings are not usable");
        FailCode::FamilyUnavailable
    })?;
    // Nobody asks a child to end: it is ended.
    family.run(host, &start.scope, &Cancel::new()).await
}

/// The host as a pipe: one question at a time.
struct PipeHost {
    speaker: Mutex<Out>,
    answers: Mutex<mpsc::Receiver<Result<Answer, HostError>>>,
}

impl PipeHost {
    async fn ask(&self, ask: Ask) -> Result<Answer, HostError> {
        // Held until the answer is there, so that two questions at once cannot take each other's.
        let mut answers = self.answers.lock().await;
        let said = self.speaker.lock().await.say(&FromChild::Ask(ask)).await;
        match said {
            Ok(()) => answers.recv().await.unwrap_or(Err(HostError::Unavailable)),
            Err(WireFault::TooLong | WireFault::Unreadable) => Err(HostError::Refused(FailCode::Unhandled)),
            Err(WireFault::Closed) => Err(HostError::Unavailable),
        }
    }
}

/// An answer to another question than the one asked: the worker is not of this build.
const MIXED_UP: HostError = HostError::Refused(FailCode::Unhandled);

#[async_trait]
impl ProcessorHost for PipeHost {
    async fn load(&self, request: Load) -> Result<Loaded, HostError> {
        match self.ask(Ask::Load(request)).await? {
            Answer::Loaded(loaded) => Ok(loaded),
            _ => Err(MIXED_UP),
        }
    }

    async fn search(&self, request: Search) -> Result<Vec<SearchHit>, HostError> {
        match self.ask(Ask::Search(request)).await? {
            Answer::Hits(hits) => Ok(hits),
            _ => Err(MIXED_UP),
        }
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, HostError> {
        match self.ask(Ask::Reserve(request)).await? {
            Answer::Reserved(reserved) => Ok(reserved),
            _ => Err(MIXED_UP),
        }
    }

    async fn commit_window(&self, write: DomainWrite) -> Result<Committed, HostError> {
        match self.ask(Ask::CommitWindow(Box::new(write))).await? {
            Answer::Committed(committed) => Ok(committed),
            _ => Err(MIXED_UP),
        }
    }
}
