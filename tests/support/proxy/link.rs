//! One connection through the fault proxy: what it does in each mode, and how a rule breaks it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use powercontext::rt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::packets::{Packet, Packets, Session, ends_answer, statements};
use super::{Act, Mode, Setting, Shared};

/// How a connection goes on.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The mode changed.
    Changed,
    /// It is over.
    Over,
}

/// A client's connection and its server's.
pub(super) struct Link {
    client: TcpStream,
    server: Option<TcpStream>,
    session: Session,
    from_client: Packets,
    from_server: Packets,
    shared: Arc<Shared>,
    setting: watch::Receiver<Setting>,
}

impl Link {
    /// A connection that was just accepted; its server is not asked yet.
    pub(super) fn new(client: TcpStream, shared: Arc<Shared>, setting: watch::Receiver<Setting>) -> Self {
        Self {
            client,
            server: None,
            session: Session::default(),
            from_client: Packets::default(),
            from_server: Packets::default(),
            shared,
            setting,
        }
    }

    /// Goes on until a side, the mode or a rule ends it.
    pub(super) async fn run(mut self, server: (String, u16)) {
        loop {
            let mode = self.setting.borrow_and_update().mode;
            let next = match mode {
                Mode::Pass | Mode::Delay(_) => {
                    let delay = if let Mode::Delay(delay) = mode {
                        delay
                    } else {
                        Duration::ZERO
                    };
                    if self.server.is_none() {
                        self.server = TcpStream::connect((server.0.as_str(), server.1)).await.ok();
                    }
                    self.pass(delay).await.unwrap_or(Next::Over)
                }
                Mode::Stall => changed(&mut self.setting).await,
                Mode::BlackHole => self.swallow().await,
                Mode::HalfOpen => self.half_open().await,
                Mode::Refuse | Mode::Reset => Next::Over,
            };
            if next == Next::Over {
                break;
            }
        }
        reset(self.client);
        if let Some(server) = self.server {
            reset(server);
        }
    }

    /// Forwards until the mode changes, a side closes or a rule has acted.
    async fn pass(&mut self, delay: Duration) -> anyhow::Result<Next> {
        let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        loop {
            let server = self.server.as_mut().context("the server does not answer")?;
            tokio::select! {
                biased;
                next = changed(&mut self.setting) => return Ok(next),
                read = server.read(&mut answered) => {
                    let read = read?;
                    anyhow::ensure!(read > 0, "the server has closed");
                    pause(delay).await;
                    self.client.write_all(&answered[..read]).await?;
                    self.from_server.push(&answered[..read]);
                    while let Some(packet) = self.from_server.next() {
                        self.session.received(&packet);
                    }
                }
                read = self.client.read(&mut asked) => {
                    let read = read?;
                    anyhow::ensure!(read > 0, "the client has closed");
                    self.from_client.push(&asked[..read]);
                    while let Some(packet) = self.from_client.next() {
                        pause(delay).await;
                        if let Some(next) = self.forward(&packet).await? {
                            return Ok(next);
                        }
                    }
                }
            }
        }
    }

    /// Hands one packet to the server, unless a rule has other ideas.
    async fn forward(&mut self, packet: &Packet) -> anyhow::Result<Option<Next>> {
        let command = self.session.sent(packet);
        let act = self.shared.judge(&command, statements(packet));
        let server = self.server.as_mut().context("the server does not answer")?;
        if !matches!(act, Some(Act::CutBefore | Act::MuteBefore)) {
            server.write_all(packet.bytes()).await?;
        }
        Ok(match act {
            None => None,
            Some(Act::CutBefore) => Some(Next::Over),
            Some(Act::CutAfter) => {
                answer(server).await?;
                Some(Next::Over)
            }
            Some(Act::MuteAfter) => {
                answer(server).await?;
                self.lose_all().await;
                Some(Next::Over)
            }
            Some(Act::MuteBefore) => {
                self.lose_all().await;
                Some(Next::Over)
            }
        })
    }

    /// Loses everything until the mode changes; what lost nothing may go on.
    async fn swallow(&mut self) -> Next {
        let mut lost = vec![0; 64 * 1024];
        let mut other = vec![0; 64 * 1024];
        let has_server = self.server.is_some();
        tokio::select! {
            biased;
            next = changed(&mut self.setting) => return if has_server { next } else { Next::Over },
            _ = self.client.read(&mut lost) => {}
            _ = read_opt(self.server.as_mut(), &mut other) => {}
        }
        self.lose_all().await;
        Next::Over
    }

    /// Reads and loses what the client sends until the mode changes. The server's side stays open, whatever the client does.
    async fn lose_all(&mut self) {
        let mut lost = vec![0; 64 * 1024];
        loop {
            tokio::select! {
                biased;
                _ = changed(&mut self.setting) => return,
                read = self.client.read(&mut lost) => if !matches!(read, Ok(1..)) {
                    changed(&mut self.setting).await;
                    return;
                },
            }
        }
    }

    /// Closes the server's side and never answers the client.
    async fn half_open(&mut self) -> Next {
        self.server = None;
        let mut lost = vec![0; 64 * 1024];
        let mut has_sent = false;
        loop {
            let is_healed = self.setting.borrow_and_update().mode != Mode::HalfOpen;
            if is_healed && has_sent {
                return Next::Over;
            }
            tokio::select! {
                biased;
                next = changed(&mut self.setting) => if next == Next::Over { return next },
                read = self.client.read(&mut lost), if !has_sent => has_sent = matches!(read, Ok(1..)) || return Next::Over,
            }
        }
    }
}

async fn changed(setting: &mut watch::Receiver<Setting>) -> Next {
    match setting.changed().await {
        Ok(()) => Next::Changed,
        Err(_) => Next::Over,
    }
}

async fn read_opt(stream: Option<&mut TcpStream>, buffer: &mut [u8]) -> std::io::Result<usize> {
    match stream {
        Some(stream) => stream.read(buffer).await,
        None => std::future::pending().await,
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        rt::sleep(delay).await;
    }
}

/// Reads the server's whole answer to a command without rows, and keeps it.
async fn answer(server: &mut TcpStream) -> anyhow::Result<()> {
    let mut packets = Packets::default();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = server.read(&mut bytes).await?;
        anyhow::ensure!(read > 0, "the server has closed");
        packets.push(&bytes[..read]);
        while let Some(packet) = packets.next() {
            if ends_answer(&packet) {
                return Ok(());
            }
        }
    }
}

/// Closes without a word: the other side is told that the connection is gone.
fn reset(stream: TcpStream) {
    // Fails only on a socket that is gone already.
    let _ = stream.set_zero_linger();
    drop(stream);
}
