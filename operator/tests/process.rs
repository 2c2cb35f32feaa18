//! The program itself, without a cluster: it tells that it lives, waits for an API server that is not there, and ends when it
//! is asked to.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(30);

/// Ends the process whatever happens to the test.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
    Instant::now()
}

/// Tries until there is an answer, or the deadline has passed.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "it never came true");
        std::thread::yield_now();
    }
}

fn status(port: u16, path: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    answer.lines().next().map(str::to_owned)
}

/// Starts it; `preloaded` is a library that changes what it sees of the machine.
fn start_with(folder: &Path, port: u16, more: &[&str], preloaded: Option<&Path>) -> Operator {
    let kubeconfig = folder.join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
        contexts: [{name: x, context: {cluster: x, user: x}}]\n\
        clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: x, user: {}}]\n";
    std::fs::write(&kubeconfig, text).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_powercontext-operator"));
    command
        .args(["--port", &port.to_string()])
        .args(more)
        .env("KUBECONFIG", kubeconfig)
        .stderr(Stdio::null());
    if let Some(preloaded) = preloaded {
        command.env("LD_PRELOAD", preloaded);
    }
    Operator(command.spawn().expect("it starts"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port")
        .port()
}

/// Asks it to end with SIGTERM, and waits until it has ended with status 0.
fn ends_well(operator: &mut Operator) {
    let asked = Command::new("kill").arg(operator.0.id().to_string()).status();
    assert!(asked.is_ok_and(|status| status.success()));
    let ended = until(|| operator.0.try_wait().expect("a child"));
    assert!(ended.success(), "{ended}");
}

#[test]
fn it_lives_without_an_api_server_and_ends_well_when_it_is_asked_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = free_port();
    let mut operator = start_with(folder.path(), port, &[], None);
    until(|| status(port, "/health/live").filter(|line| line.ends_with("200 OK")));
    assert!(status(port, "/metrics").is_some_and(|line| line.ends_with("200 OK")));
    ends_well(&mut operator);
}

#[test]
fn a_leader_that_never_reached_its_api_server_ends_well_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = free_port();
    let mut operator = start_with(folder.path(), port, &["--no-leader-election"], None);
    // It leads, and waits for the caches.
    until(|| status(port, "/health/ready").filter(|line| line.contains("503")));
    ends_well(&mut operator);
}

#[test]
fn it_serves_ipv4_where_the_machine_has_no_ipv6() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("no_ipv6.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support/no_ipv6.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(
        compiled.is_ok_and(|status| status.success()),
        "cc compiles what a test preloads"
    );
    let port = free_port();
    let _operator = start_with(folder.path(), port, &[], Some(&library));
    until(|| status(port, "/health/live").filter(|line| line.ends_with("200 OK")));
    let sockets = std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    assert!(
        !sockets.contains(&format!(":{port:04X} ")),
        "it listens on IPv6 after all"
    );
}
