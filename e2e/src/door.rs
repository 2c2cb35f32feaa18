//! A way to the database that a scenario shuts: pods reach it through here and nowhere else.

use std::net::{Ipv4Addr, SocketAddr};

use powercontext::rt;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Bytes pass.
    Open,
    /// Connections are reset, new ones at once.
    Refused,
    /// Connections open and nothing passes.
    Silent,
}

/// A forwarding port. It ends when it is dropped.
pub(crate) struct Door {
    port: u16,
    way: watch::Sender<Way>,
    stop: CancellationToken,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Door {
    /// An open way to that port of that address.
    ///
    /// # Errors
    /// When there is no free port.
    pub(crate) async fn before(host: Ipv4Addr, port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((host, 0)).await?;
        let door = Self {
            port: listener.local_addr()?.port(),
            way: watch::channel(Way::Open).0,
            stop: CancellationToken::new(),
        };
        let (way, stop) = (door.way.subscribe(), door.stop.clone());
        rt::spawn(async move {
            loop {
                let accepted = tokio::select! { biased; () = stop.cancelled() => return, accepted = listener.accept() => accepted };
                if let Ok((socket, _)) = accepted {
                    rt::spawn(pass(socket, (host, port).into(), way.clone()));
                }
            }
        });
        Ok(door)
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on, and for open connections.
    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

/// Carries one connection while the way is open. What was lost meanwhile is missing, so that it is reset afterwards.
async fn pass(mut near: TcpStream, to: SocketAddr, mut way: watch::Receiver<Way>) {
    // Without it a closed socket says goodbye; a broken network does not.
    let _ = near.set_zero_linger();
    if *way.borrow() == Way::Open
        && let Ok(mut far) = TcpStream::connect(to).await
    {
        tokio::select! {
            biased;
            _ = way.wait_for(|way| *way != Way::Open) => {}
            _ = copy_bidirectional(&mut near, &mut far) => return,
        }
    }
    let _ = way.wait_for(|way| *way != Way::Silent).await;
}
