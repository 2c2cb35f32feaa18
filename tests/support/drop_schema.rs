//! `drop-test-schema NAME`: waits until the test process that started it is gone, then drops that process's schema.
//!
//! The URL of the server comes in on the first line of standard input (an argument would show it to every user of the
//! machine); the end of the input is the end of the parent.

use std::io::{BufRead, Read};

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let schema = std::env::args().nth(1).context("usage: drop-test-schema NAME")?;
    let mut input = std::io::stdin().lock();
    let mut url = String::new();
    input.read_line(&mut url)?;
    input.read_to_end(&mut Vec::new())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(powercontext_tests::oceanbase::drop_schema(url.trim(), &schema))
}
