//! A TCP proxy that breaks connections to the OceanBase kernel the way networks do, at a moment that a test chooses.
//!
//! A [`Mode`] holds for every connection until it is changed. A [`Rule`] waits for one transaction, which it recognises by
//! the names of its statements, and breaks that one connection before or after the server has done what was asked. The
//! proxy reads the protocol in clear text, so [`Proxy::url`] turns encryption off.

// Named, because the benchmark has this file as a module too.
#[path = "proxy/link.rs"]
mod link;
#[path = "proxy/packets.rs"]
mod packets;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use powercontext::rt;
use reqwest::Url;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use link::Link;
use packets::Command;

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards.
    Pass,
    /// Forwards, each packet this much later.
    Delay(Duration),
    /// Nobody listens; open connections are reset.
    Refuse,
    /// Connections open and every byte of them is lost, either way. Nobody is told, not even when a side closes. What was
    /// open is reset once the network heals, as its bytes are missing.
    BlackHole,
    /// As [`Mode::BlackHole`], but nothing is lost: everything arrives once the network heals, however late.
    Stall,
    /// The server's side is closed and the client's is not: the client is never answered. Once healed, the first byte
    /// that it sends, or has sent, resets the connection.
    HalfOpen,
    /// Connections are reset, new ones as soon as they open.
    Reset,
}

/// When a rule acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// When a transaction commits that has run a statement whose name starts so.
    Commit(&'static str),
    /// When a statement runs whose name starts so.
    Statement(&'static str),
}

/// What a rule does to the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Cuts both sides; the server never gets the command.
    CutBefore,
    /// Lets the server do it and answer, then cuts the client, who never gets the answer.
    CutAfter,
    /// Loses the command and everything after it. The server is not told: what it has locked stays locked.
    MuteBefore,
    /// Lets the server do it; the answer and everything after it is lost.
    MuteAfter,
}

/// Waits for a command and breaks its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// When.
    pub at: At,
    /// What.
    pub act: Act,
    /// How many matching commands pass first.
    pub skip: u32,
}

impl Rule {
    /// For the next transaction that has run such a statement and commits.
    pub fn on_commit_of(statement: &'static str, act: Act) -> Self {
        let at = At::Commit(statement);
        Self { at, act, skip: 0 }
    }

    fn matches(&self, command: &Command) -> bool {
        match (command, self.at) {
            (Command::Commit(_), At::Commit(name)) | (Command::Statements(_), At::Statement(name)) => {
                command.ran().iter().any(|ran| ran.starts_with(name))
            }
            _ => false,
        }
    }
}

/// What went through, counted since the proxy started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Commands that a client waited for.
    pub round_trips: u64,
    /// Statements that were sent, however many went together; with BEGIN, COMMIT and questions whether a connection lives.
    pub statements: u64,
    /// Commits that were sent.
    pub commits: u64,
    /// Rules that have acted.
    pub acted: u64,
    /// Commands that a client waited for, of those that [`Proxy::watch`] names.
    pub watched: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    mode: Mode,
    number: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Each with whether it is over once it has acted.
    rules: Mutex<Vec<(Rule, bool)>>,
    connections: AtomicU64,
    round_trips: AtomicU64,
    statements: AtomicU64,
    commits: AtomicU64,
    acted: AtomicU64,
    watch: Mutex<&'static [&'static str]>,
    watched: AtomicU64,
}

impl Shared {
    /// Counts a command and takes the rule that waits for it.
    fn judge(&self, command: &Command, statements: u64) -> Option<Act> {
        if command.is_answered() {
            self.round_trips.fetch_add(1, Ordering::Relaxed);
            self.statements.fetch_add(statements, Ordering::Relaxed);
        }
        if matches!(command, Command::Commit(_)) {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        let watch = *self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if command
            .ran()
            .iter()
            .any(|ran| watch.iter().any(|name| ran.starts_with(name)))
        {
            self.watched.fetch_add(1, Ordering::Relaxed);
        }
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let at = rules.iter().position(|(rule, _)| rule.matches(command))?;
        let (rule, is_once) = &mut rules[at];
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        self.acted.fetch_add(1, Ordering::Relaxed);
        let act = rule.act;
        if *is_once {
            rules.remove(at);
        }
        Some(act)
    }
}

/// A running proxy; dropping it resets every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    setting: watch::Sender<Setting>,
    applied: watch::Receiver<u64>,
    listener: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Proxy {
    /// Starts a proxy before the server of this URL, on a free port of this machine.
    ///
    /// # Errors
    /// When the URL names no server or no port is free.
    pub async fn before(url: &str) -> anyhow::Result<Self> {
        let mut url = Url::parse(url).map_err(|_| anyhow::anyhow!("no URL of a server"))?;
        let host = url.host_str().context("a URL without a host")?.to_owned();
        let server = (host, url.port().unwrap_or(3306));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        url.set_host(Some("127.0.0.1"))?;
        url.set_port(Some(address.port()))
            .map_err(|()| anyhow::anyhow!("a URL that takes no port"))?;
        url.query_pairs_mut().append_pair("ssl-mode", "disabled");
        let (mode, number) = (Mode::Pass, 0);
        let setting = watch::Sender::new(Setting { mode, number });
        let (apply, applied) = watch::channel(0);
        let shared = Arc::new(Shared::default());
        let accept = Accept {
            address,
            server,
            shared: Arc::clone(&shared),
            setting: setting.subscribe(),
            apply,
        };
        Ok(Self {
            address,
            url: url.into(),
            shared,
            setting,
            applied,
            listener: rt::spawn(accept.run(listener)),
        })
    }

    /// The server's URL by way of the proxy. May hold a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to connections; on return new ones meet the new mode.
    ///
    /// # Errors
    /// When the proxy could not listen again.
    pub async fn set(&self, mode: Mode) -> anyhow::Result<()> {
        let mut number = 0;
        self.setting.send_modify(|setting| {
            number = setting.number + 1;
            *setting = Setting { mode, number };
        });
        let mut applied = self.applied.clone();
        let done = rt::within(Duration::from_secs(10), applied.wait_for(|done| *done >= number)).await;
        done.context("the proxy did not listen again")??;
        Ok(())
    }

    /// Arms a rule; it acts once.
    pub fn arm(&self, rule: Rule) {
        self.rules().push((rule, true));
    }

    /// Arms a rule that acts each time, until [`Proxy::disarm`].
    pub fn arm_for_good(&self, rule: Rule) {
        self.rules().push((rule, false));
    }

    /// Forgets the rules that have not acted, or act each time.
    pub fn disarm(&self) {
        self.rules().clear();
    }

    /// Whether every rule has acted.
    pub fn is_disarmed(&self) -> bool {
        self.rules().is_empty()
    }

    /// Counts commands that run a statement whose name starts so, or commit a transaction that has run one.
    pub fn watch(&self, names: &'static [&'static str]) {
        *self.shared.watch.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// What went through so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            connections: read(&self.shared.connections),
            round_trips: read(&self.shared.round_trips),
            statements: read(&self.shared.statements),
            commits: read(&self.shared.commits),
            acted: read(&self.shared.acted),
            watched: read(&self.shared.watched),
        }
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<(Rule, bool)>> {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections as the mode says.
struct Accept {
    address: SocketAddr,
    server: (String, u16),
    shared: Arc<Shared>,
    setting: watch::Receiver<Setting>,
    apply: watch::Sender<u64>,
}

impl Accept {
    async fn run(mut self, listener: TcpListener) {
        let mut listener = Some(listener);
        loop {
            let Setting { mode, number } = *self.setting.borrow_and_update();
            if mode == Mode::Refuse {
                listener = None;
            } else if listener.is_none() {
                // The port stays ours on this machine unless somebody takes it meanwhile; `set` tells that in time.
                listener = TcpListener::bind(self.address).await.ok();
            }
            if listener.is_some() || mode == Mode::Refuse {
                self.apply.send_replace(number);
            }
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await.ok(),
                    None if mode == Mode::Refuse => std::future::pending().await,
                    None => {
                        rt::sleep(Duration::from_millis(10)).await;
                        None
                    }
                }
            };
            tokio::select! {
                biased;
                changed = self.setting.changed() => if changed.is_err() { return },
                accepted = accepted => if let Some((client, _)) = accepted { self.start(client) },
            }
        }
    }

    fn start(&self, client: TcpStream) {
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        let (shared, setting) = (Arc::clone(&self.shared), self.setting.clone());
        let server = self.server.clone();
        rt::spawn(async move {
            Link::new(client, shared, setting).run(server).await;
        });
    }
}
