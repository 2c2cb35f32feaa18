//! What a worker and its child say to each other: JSON in frames of a limited length.
//!
//! The child speaks first (`Ready`). It is told one invocation, asks one thing at a time, and ends with `End`. The end of
//! the stream without `End` is no end of a run.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec, LengthDelimitedCodecError};

use crate::families::host::MESSAGE_BYTES_MAX;
use crate::families::{Committed, DomainWrite, Done, HostError, Load, Loaded, Reserve, Reserved, Search, SearchHit};
use crate::telemetry::log::Format;
use crate::worker::child::{ChildLog, FamilyJob};

/// One invocation.
#[derive(Serialize, Deserialize)]
pub(super) struct Start {
    /// Whose Sources.
    pub(super) scope: ScopeId,
    /// Settings and secrets of the one family.
    pub(super) family: FamilyJob,
    /// How the child logs.
    pub(super) log: LogWire,
}

/// A [`ChildLog`] in a frame.
#[derive(Serialize, Deserialize)]
pub(super) struct LogWire {
    level: String,
    is_json: bool,
}

impl From<ChildLog> for LogWire {
    fn from(log: ChildLog) -> Self {
        Self {
            level: log.level.to_string(),
            is_json: log.format == Format::Json,
        }
    }
}

impl LogWire {
    /// Level and format.
    pub(super) fn parts(&self) -> (tracing::Level, Format) {
        let level = self.level.parse().unwrap_or(tracing::Level::INFO);
        let format = if self.is_json { Format::Json } else { Format::Console };
        (level, format)
    }
}

/// To the child.
#[derive(Serialize, Deserialize)]
pub(super) enum ToChild {
    /// Its invocation; the first message, and once.
    Start(Box<Start>),
    /// To its last [`Ask`].
    Answer(Box<Result<Answer, HostError>>),
}

/// To the worker.
#[derive(Serialize, Deserialize)]
pub(super) enum FromChild {
    /// It waits for its invocation.
    Ready,
    /// It wants something of its host.
    Ask(Ask),
    /// The run is over.
    End(Result<Box<Done>, FailCode>),
}

/// A call of the family's host.
#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    Load(Load),
    Search(Search),
    Reserve(Reserve),
    CommitWindow(Box<DomainWrite>),
}

/// What the host said.
#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Loaded(Loaded),
    Hits(Vec<SearchHit>),
    Reserved(Reserved),
    Committed(Committed),
}

/// Why a message did not pass. Carries nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireFault {
    /// The other side closed, or is gone.
    #[error("the stream ended")]
    Closed,
    /// A frame over [`MESSAGE_BYTES_MAX`].
    #[error("a message is longer than allowed")]
    TooLong,
    /// No message of this protocol.
    #[error("a message cannot be read")]
    Unreadable,
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .max_frame_length(MESSAGE_BYTES_MAX)
        .new_codec()
}

fn fault(error: &std::io::Error) -> WireFault {
    let is_long = error
        .get_ref()
        .and_then(|source| source.downcast_ref::<LengthDelimitedCodecError>());
    if is_long.is_some() {
        WireFault::TooLong
    } else {
        WireFault::Closed
    }
}

/// The end that speaks.
pub(super) struct Speaker<W>(FramedWrite<W, LengthDelimitedCodec>);

impl<W: AsyncWrite + Unpin> Speaker<W> {
    pub(super) fn new(stream: W) -> Self {
        Self(FramedWrite::new(stream, codec()))
    }

    /// Says one message.
    ///
    /// # Errors
    /// [`WireFault`] when it is too long, or nobody hears it.
    pub(super) async fn say(&mut self, message: &impl Serialize) -> Result<(), WireFault> {
        let mut frame = BytesMut::new().writer();
        serde_json::to_writer(&mut frame, message).map_err(|_| WireFault::Unreadable)?;
        let frame: Bytes = frame.into_inner().freeze();
        self.0.send(frame).await.map_err(|error| fault(&error))
    }
}

/// The end that hears.
pub(super) struct Listener<R>(FramedRead<R, LengthDelimitedCodec>);

impl<R: AsyncRead + Unpin> Listener<R> {
    pub(super) fn new(stream: R) -> Self {
        Self(FramedRead::new(stream, codec()))
    }

    /// Hears one message. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`WireFault`].
    pub(super) async fn hear<M: DeserializeOwned>(&mut self) -> Result<M, WireFault> {
        let frame = self.0.next().await.ok_or(WireFault::Closed)?;
        let frame = frame.map_err(|error| fault(&error))?;
        serde_json::from_slice(&frame).map_err(|_| WireFault::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Speaker<tokio::io::DuplexStream>, Listener<tokio::io::DuplexStream>) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        (Speaker::new(ours), Listener::new(theirs))
    }

    #[tokio::test]
    async fn a_message_arrives_as_it_was_said() {
        let (mut speaker, mut listener) = pair();
        speaker.say(&FromChild::Ready).await.expect("said");
        let ask = FromChild::Ask(Ask::Search(Search {
            query: "naïve\0 🦀".to_owned(),
            limit: 3,
        }));
        speaker.say(&ask).await.expect("said");
        drop(speaker);
        assert!(matches!(listener.hear().await, Ok(FromChild::Ready)));
        let Ok(FromChild::Ask(Ask::Search(search))) = listener.hear().await else {
            panic!("another message arrived");
        };
        assert_eq!((search.query.as_str(), search.limit), ("naïve\0 🦀", 3));
        let end = listener.hear::<FromChild>().await.map(drop);
        assert_eq!(end, Err(WireFault::Closed));
    }

    #[tokio::test]
    async fn a_frame_over_the_limit_is_refused_on_both_sides() {
        use tokio::io::AsyncWriteExt as _;
        let (mut raw, theirs) = tokio::io::duplex(64);
        let mut listener = Listener::new(theirs);
        let long = u32::try_from(MESSAGE_BYTES_MAX + 1).expect("fits");
        raw.write_all(&long.to_be_bytes()).await.expect("written");
        assert_eq!(listener.hear::<FromChild>().await.map(drop), Err(WireFault::TooLong));

        let (mut speaker, _listener) = pair();
        let ask = Ask::Search(Search {
            query: "x".repeat(MESSAGE_BYTES_MAX),
            limit: 1,
        });
        assert_eq!(speaker.say(&FromChild::Ask(ask)).await, Err(WireFault::TooLong));
    }

    #[tokio::test]
    async fn what_is_no_message_and_a_frame_cut_short_are_told_apart() {
        use tokio::io::AsyncWriteExt as _;
        for (bytes, expected) in [
            (&b"\0\0\0\x02{}"[..], WireFault::Unreadable),
            (&b"\0\0\0\x09\"Ready"[..], WireFault::Closed),
            (&b"\0\0"[..], WireFault::Closed),
        ] {
            let (mut raw, theirs) = tokio::io::duplex(64);
            raw.write_all(bytes).await.expect("written");
            drop(raw);
            let heard = Listener::new(theirs).hear::<FromChild>().await.map(drop);
            assert_eq!(heard, Err(expected), "{bytes:?}");
        }
    }
}
