//! The demonstration, as `make run` runs it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::binary;
use tokio::process::Command;

/// What the whole of it may take.
const WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demonstration_shows_operations_entries_and_hits_and_ends_by_itself() -> anyhow::Result<()> {
    let conversation = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/conversation.jsonl");
    let home = tempfile::tempdir()?;
    let started = rt::now();
    let demo = Command::new(binary::server()?)
        .args(["dev", "demo", "--conversation"])
        .arg(conversation)
        .env_clear()
        .env("TMPDIR", home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = rt::within(WITHIN, demo).await.context("it took too long")??;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
    for part in [
        "captured",
        "flushed",
        "operations",
        "succeeded",
        "attempts 1",
        "entries",
        "[harbor-",
        "search in",
        "hits",
        "keep",
    ] {
        ensure!(out.to_lowercase().contains(part), "{part:?} is not in\n{out}");
    }
    ensure!(
        home.path().read_dir()?.next().is_none(),
        "it left its temporary home behind"
    );
    println!("{out}\nit took {:?}", started.elapsed());
    Ok(())
}
