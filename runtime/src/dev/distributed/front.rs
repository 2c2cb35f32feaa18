//! One address before several servers: each connection goes to the next one that takes it, so that whoever uses it sees
//! that no request depends on the server that answered the last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::rt;

/// Longest wait for a server behind the front to take a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Pause after an accept that failed, which is a lack of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Passes connections on until `stop`; those that are open then are cut.
pub(super) async fn serve(listener: TcpListener, servers: Vec<SocketAddr>, stop: CancellationToken) {
    let servers: Arc<[SocketAddr]> = servers.into();
    let turn = Arc::new(AtomicUsize::new(0));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((client, _)) = accepted else {
            rt::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (servers, stop, first) = (Arc::clone(&servers), stop.clone(), turn.fetch_add(1, Ordering::Relaxed));
        rt::spawn(connections.track_future(async move {
            tokio::select! { biased; () = stop.cancelled() => {}, () = pass(client, &servers, first) => {} }
        }));
    }
    connections.close();
    connections.wait().await;
}

async fn pass(mut client: TcpStream, servers: &[SocketAddr], first: usize) {
    for offset in 0..servers.len() {
        let server = servers[(first + offset) % servers.len()];
        if let Ok(Ok(mut server)) = rt::within(CONNECT_WITHIN, TcpStream::connect(server)).await {
            // A side that breaks off ends the connection of the other.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    /// A server that says one letter to everyone.
    async fn saying(letter: u8) -> SocketAddr {
        let (listener, address) = listener().await;
        rt::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                client.write_all(&[letter]).await.expect("said");
            }
        });
        address
    }

    async fn heard(front: SocketAddr) -> String {
        let mut stream = TcpStream::connect(front).await.expect("the front takes it");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("text");
        text
    }

    #[tokio::test]
    async fn connections_go_round_and_pass_over_a_server_that_is_gone() {
        let (gone, nobody) = listener().await;
        drop(gone);
        let servers = vec![saying(b'a').await, nobody, saying(b'b').await];
        let (front, address) = listener().await;
        let stop = CancellationToken::new();
        let served = rt::spawn(serve(front, servers, stop.clone()));
        let mut all = String::new();
        for _ in 0..6 {
            all += &heard(address).await;
        }
        assert_eq!(all, "abbabb");
        stop.cancel();
        served.await.expect("no panic");
    }
}
